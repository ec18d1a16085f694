package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// window is the number of bytes that a Reader usually reads at once.
const window = 64 << 10

// sector is the smallest unit that a disk writes as a whole.
const sector = 512

// A Reader reads the frames of a file.
type Reader struct {
	r    io.ReaderAt
	size int64
	h    Header
	at   int64 // offset of the next frame

	buf  []byte // the bytes of the file starting at offset base
	base int64
	sums summer

	vouched int64         // the largest length that the frames so far vouch for
	open    bool          // whether the file can still grow; see Grow
	most    int64         // maximum size of a payload; 0 means no limit; see MaxPayload
	broken  error         // error in the header, until Next returns the error
	other   *CorruptError // error for a wrong file number, until Next returns the error
	ended   bool          // whether Next has just read a mark that vouches for all earlier frames
	scanned bool
	durable int64 // the length that whole frames vouch for; valid only if scanned is true
}

// NewReader returns a Reader for a file of size bytes and reads the header. If a newer version of
// the program wrote the file, the error wraps ErrNewer. If the file has a different kind, the error
// is a *CorruptError. Any other error means that the file could not be read. If the header is
// damaged, the first call to Next returns the error.
func NewReader(r io.ReaderAt, size int64, want Header) (*Reader, error) {
	f := &Reader{r: r, size: size, h: want}
	return f, f.header()
}

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
	case framing != Version:
		return fmt.Errorf("%w: framing version %d, but this program reads version %d; upgrade rollout", ErrNewer, framing, Version)
	case h.Kind != want.Kind:
		return &CorruptError{Bytes: f.size, Err: fmt.Errorf("file of kind %q, want %q", h.Kind, want.Kind)}
	case h.Version != want.Version:
		return fmt.Errorf("%w: %s version %d, but this program reads version %d; upgrade rollout", ErrNewer, h.Kind, h.Version, want.Version)
	}
	f.h = h
	f.at = HeaderSize
	if want.Number != 0 && h.Number != want.Number {
		f.other = &CorruptError{Bytes: HeaderSize, Err: fmt.Errorf("the header has number %d, but the file name has number %d", h.Number, want.Number)}
	}
	return nil
}

// Header returns the file's header. If the header is damaged, it returns the header that was passed
// to NewReader.
func (f *Reader) Header() Header { return f.h }

// Offset returns the offset of the next frame.
func (f *Reader) Offset() int64 { return f.at }

// Durable returns the length of the part of the file that is known to be durable, according to the
// frames that Next has read.
func (f *Reader) Durable() int64 {
	if f.ended {
		return f.at
	}
	return f.vouched
}

// Ended reports whether the file ends with a mark that vouches for all earlier frames. The result
// is valid only after Next has returned io.EOF.
func (f *Reader) Ended() bool { return f.ended }

// Next returns the payload of the next frame. The payload is valid until the next call to Next.
// Next skips marks. At the end of the file, it returns io.EOF.
//
// If the bytes at the Reader's offset are not a whole frame, the error is a *TornError or a
// *CorruptError. If the file has the wrong number, the error is a *CorruptError. After both kinds
// of errors, the next call continues with the next whole frame. Any other error means that the file
// could not be read.
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
		f.vouched = max(f.vouched, p.synced)
		if !p.mark {
			return p.payload, nil
		}
	}
	return nil, io.EOF
}

// damage is called if the bytes at the Reader's offset are not a frame. It skips these bytes and
// returns an error that describes the skipped part.
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

// unwritten reports whether a part that no frame vouches for looks like an interrupted write. That
// is the case if the file ends within a frame, or if a sector contains only zeros because it was
// never written. A disk writes a whole sector or nothing.
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

// find returns the offset of the first whole frame at or after the given offset. If there is no
// such frame, it returns the size of the file.
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

// scan sets f.durable to the largest length that any whole frame at or after the given offset
// vouches for.
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

type parsed struct {
	payload []byte
	synced  int64
	mark    bool // the frame is a mark
}

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
	// A frame cannot vouch for its own bytes or for later bytes. Check this before reading the
	// payload, so that no memory is allocated for a damaged length.
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

// bytes returns at least n bytes of the file, starting at the given offset. The bytes are valid
// until the next call.
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
		err = io.ErrUnexpectedEOF // the file was truncated after it was opened
	}
	return nil, err
}

func isDamage(err error) bool {
	return errors.Is(err, errShort) || errors.Is(err, errMark) || errors.Is(err, errSum)
}

// Salvage calls yield for every part of the file. For a whole frame, yield receives the payload.
// For a torn or damaged part, it receives a *TornError or a *CorruptError. A payload is valid until
// yield returns. Salvage stops at the end of the file, at a read error, or when yield returns an
// error.
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

// Last returns the payload of the last frame of a file, without reading the rest of the file. If the
// file does not end with a whole frame whose payload has at most most bytes, the error is a
// *CorruptError. A mark at the end is such a case, and so can be a payload that is not UTF-8 text.
func Last(r io.ReaderAt, size, most int64) ([]byte, error) {
	for n := int64(4 << 10); ; n *= 16 {
		n = min(n, size, most+Overhead)
		end := make([]byte, n)
		if _, err := r.ReadAt(end, size-n); err != nil && err != io.EOF {
			return nil, err
		}
		if i := int64(bytes.LastIndex(end, []byte(mark))); i >= 0 {
			payload, _, err := At(r, size-n+i, n-i, nil)
			return payload, err
		}
		if n == min(size, most+Overhead) {
			return nil, &CorruptError{Offset: size - n, Bytes: n, Err: errMark}
		}
	}
}

// At returns the payload of the frame at an offset in the file. n is the length of the frame,
// including Overhead. At stores the payload in buf or, if buf is too small, in a new buffer. It
// also returns this buffer, so that the next call can reuse the buffer. If there is no whole frame
// of length n at the offset, the error is a *CorruptError.
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
