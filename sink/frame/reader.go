package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// window is how much a Reader reads at once.
const window = 64 << 10

// sector is the least that a disk writes as a whole.
const sector = 512

// A Reader reads the frames of a file.
type Reader struct {
	r    io.ReaderAt
	size int64
	h    Header
	at   int64 // where the next frame begins

	buf  []byte // the bytes of the file from base on
	base int64
	sums summer

	open    bool          // more may be written: see Grow
	most    int64         // the longest payload, or 0: see MaxPayload
	framing uint16        // the version; 0: not known
	broken  error         // what is wrong with the header, until Next told it
	other   *CorruptError // the file is another one, until Next told it
	ended   bool          // the last frame so far is a mark for all before it
	scanned bool
	durable int64 // once scanned: what the whole frames vouch for
}

// NewReader reads the header of a file of size bytes. An error wraps ErrNewer
// where a newer version wrote it, is a *CorruptError where it is of another kind,
// or says why it could not be read. A damaged header is for Next to tell.
func NewReader(r io.ReaderAt, size int64, want Header) (*Reader, error) {
	f := &Reader{r: r, size: size, h: want}
	return f, f.header()
}

// header reads the header, if there is one.
func (f *Reader) header() error {
	if f.size == 0 || f.open && f.size < HeaderSize {
		return nil
	}
	b, err := f.bytes(0, min(f.size, HeaderSize))
	if err != nil {
		return err
	}
	want := f.h
	h, framing, err := parseHeader(b)
	switch {
	case err != nil:
		f.broken = fmt.Errorf("header: %w", err)
		return nil
	case framing > Version:
		return fmt.Errorf("framing of version %d, this program knows %d; use a newer one: %w", framing, Version, ErrNewer)
	case h.Kind != want.Kind:
		return &CorruptError{Bytes: f.size, Err: fmt.Errorf("a file of kind %q, want %q", h.Kind, want.Kind)}
	case h.Version > want.Version:
		return fmt.Errorf("%s of version %d, this program knows %d; use a newer one: %w", h.Kind, h.Version, want.Version, ErrNewer)
	}
	f.h, f.framing = h, framing
	f.at = HeaderSize
	if want.Number != 0 && framing > 1 && h.Number != want.Number {
		f.other = &CorruptError{Bytes: HeaderSize, Err: fmt.Errorf("it was written as number %d, and has the name of number %d", h.Number, want.Number)}
	}
	return nil
}

// Header returns the file's header, or what NewReader was asked for where it is
// damaged.
func (f *Reader) Header() Header { return f.h }

// Offset is where the next frame begins.
func (f *Reader) Offset() int64 { return f.at }

// Ended reports, once Next returned io.EOF, whether the file ends with a mark that says
// that all before it is durable. It is true of framing 1, which has no marks.
func (f *Reader) Ended() bool { return f.ended || f.framing == 1 }

// Next returns the payload of the next frame, valid until the next call. At the
// end it returns io.EOF. Marks are passed over.
//
// A *TornError and a *CorruptError stand for bytes that are not a whole frame, or for a
// file that is not the one that it should be. The Reader is past them then: calling
// Next again goes on with the next whole frame, wherever that is. Any other error says
// that the file could not be read.
func (f *Reader) Next() ([]byte, error) {
	if f.broken != nil {
		if f.open {
			return nil, f.unfinished(f.broken)
		}
		err := f.broken
		f.broken = nil
		return nil, f.damage(err)
	}
	if f.other != nil {
		err := f.other
		f.other = nil
		return nil, err
	}
	for f.at < f.size {
		at := f.at
		p, err := f.parse(at)
		if isDamage(err) {
			f.ended = false
			if f.open {
				return nil, f.unfinished(err)
			}
			return nil, f.damage(err)
		}
		if err != nil {
			return nil, err
		}
		f.at += Overhead + int64(len(p.payload))
		f.ended = p.mark && p.synced == at
		if !p.mark {
			return p.payload, nil
		}
	}
	return nil, io.EOF
}

// damage passes over what lies at the Reader's offset and is not a frame, and returns
// what to say of it.
func (f *Reader) damage(why error) error {
	from := f.at
	next, err := f.find(from + 1)
	if err != nil {
		return err
	}
	if !f.scanned {
		if err := f.scan(next); err != nil {
			return err
		}
	}
	f.at = next
	if f.durable <= from {
		torn, err := f.unwritten(from, next, why)
		if err != nil {
			return err
		}
		if torn {
			return &TornError{Offset: from, Bytes: next - from}
		}
	}
	return &CorruptError{Offset: from, Bytes: next - from, Err: why}
}

// unwritten reports whether a part that nobody vouches for is what a process or a
// machine leaves that stopped while it was written: the file ends within a frame, or a
// sector is zeros because it never came to the disk. A disk keeps a sector or does not;
// it changes none of its bytes.
func (f *Reader) unwritten(from, next int64, why error) (bool, error) {
	if next == f.size && errors.Is(why, errShort) {
		n := min(int64(len(mark)), next-from)
		b, err := f.bytes(from, n)
		if err != nil {
			return false, err
		}
		for _, begin := range []string{mark, synced, magic} {
			if string(b[:n]) == begin[:n] && (begin == magic) == (from == 0) {
				return true, nil
			}
		}
	}
	for at := from; at < next; {
		end := min((at/sector+1)*sector, next)
		b, err := f.bytes(at, end-at)
		if err != nil {
			return false, err
		}
		if len(bytes.TrimLeft(b[:end-at], "\x00")) == 0 {
			return true, nil
		}
		at = end
	}
	return false, nil
}

// find returns the offset of the first whole frame at or after from, or the size.
func (f *Reader) find(from int64) (int64, error) {
	for from+Overhead <= f.size {
		b, err := f.bytes(from, Overhead)
		if err != nil {
			return 0, err
		}
		i := bytes.Index(b, []byte(begins))
		if i < 0 {
			from += int64(len(b) - len(begins) + 1)
			continue
		}
		from += int64(i)
		_, err = f.parse(from)
		if err == nil {
			return from, nil
		}
		if !isDamage(err) {
			return 0, err
		}
		from++
	}
	return f.size, nil
}

// scan notes what all whole frames from one of them on vouch for.
func (f *Reader) scan(from int64) error {
	f.scanned = true
	for from < f.size {
		p, err := f.parse(from)
		switch {
		case err == nil:
			f.durable = max(f.durable, p.synced)
			from += Overhead + int64(len(p.payload))
		case isDamage(err):
			if from, err = f.find(from + 1); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return nil
}

// parsed is a whole frame.
type parsed struct {
	payload []byte
	synced  int64
	mark    bool // it has no payload, and says only what is durable
}

// parse returns the frame at an offset.
func (f *Reader) parse(at int64) (p parsed, err error) {
	if f.size-at < Overhead {
		return p, errShort
	}
	b, err := f.bytes(at, Overhead)
	if err != nil {
		return p, err
	}
	n := int64(binary.LittleEndian.Uint32(b[4:]))
	switch string(b[:len(mark)]) {
	case mark:
	case synced:
		if p.mark = true; n > 0 {
			return p, errMark
		}
	default:
		return p, errMark
	}
	if f.most > 0 && n > f.most {
		return p, errSum
	}
	if n > f.size-at-Overhead {
		return p, errShort
	}
	// Before the payload is read: a length that is wrong must not cost its memory,
	// and no frame vouches for what follows it.
	vouched := binary.LittleEndian.Uint64(b[8:])
	if vouched > uint64(at) {
		return p, errSum
	}
	if b, err = f.bytes(at, Overhead+n); err != nil {
		return p, err
	}
	b = b[:Overhead+n]
	if binary.LittleEndian.Uint32(b[16:]) != f.sums.sum(at, b[:16], b[Overhead:]) {
		return p, errSum
	}
	p.payload, p.synced = b[Overhead:], int64(vouched)
	return p, nil
}

// bytes returns at least n bytes from an offset on, which the file must have. They
// are valid until the next call.
func (f *Reader) bytes(at, n int64) ([]byte, error) {
	if at >= f.base && at+n <= f.base+int64(len(f.buf)) {
		return f.buf[at-f.base:], nil
	}
	want := max(n, min(window, f.size-at))
	if int64(cap(f.buf)) < want {
		f.buf = make([]byte, want)
	}
	f.buf = f.buf[:want]
	f.base = at
	got, err := f.r.ReadAt(f.buf, at)
	if int64(got) == want {
		return f.buf, nil
	}
	f.buf = f.buf[:0]
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // it was longer when it was opened
	}
	return nil, err
}

func isDamage(err error) bool {
	return errors.Is(err, errShort) || errors.Is(err, errMark) || errors.Is(err, errSum)
}

// Salvage calls yield with the payload of every whole frame, valid until it
// returns, and with a *TornError or *CorruptError for every part between them that
// is none. It goes on until the end of the file, or until yield returns an error.
func Salvage(r *Reader, yield func(payload []byte, damage error) error) error {
	for {
		payload, err := r.Next()
		if err == io.EOF {
			return nil
		}
		_, torn := errors.AsType[*TornError](err)
		_, corrupt := errors.AsType[*CorruptError](err)
		if err != nil && !torn && !corrupt {
			return err
		}
		if err := yield(payload, err); err != nil {
			return err
		}
	}
}

// At returns the payload of the frame of n bytes at an offset, overhead included, for who
// wrote it there and knows both. The payload is in buf, or in a larger one: what it is in
// comes back, for the next call. An error is a *CorruptError where there is no such frame.
func At(r io.ReaderAt, offset, n int64, buf []byte) (payload, in []byte, err error) {
	f := Reader{r: r, size: offset + n, base: offset, buf: buf[:0]}
	p, err := f.parse(offset)
	if err == nil && (p.mark || int64(len(p.payload)) != n-Overhead) {
		err = errMark
	}
	if isDamage(err) {
		err = &CorruptError{Offset: offset, Bytes: n, Err: err}
	}
	return p.payload, f.buf[:0], err
}
