package frame

import "io"

// NewGrowing returns a Reader of a file that is still written. It has nothing to read
// until Grow says how long the file is.
func NewGrowing(r io.ReaderAt, want Header) *Reader {
	return &Reader{r: r, h: want, open: true}
}

// Grow says that the file has size bytes now, and whether more may be written. Next then
// goes on where it returned io.EOF. An error is one of those of [NewReader], and comes when
// the header does.
//
// While more may be written, what stands at the end and is not a whole frame is not damage:
// it may be half of a write. Next returns io.EOF before it. Damage with a whole frame behind
// it is a *CorruptError at once: a writer writes one frame after the other.
func (f *Reader) Grow(size int64, more bool) error {
	f.size, f.open, f.scanned = max(size, f.at), more, false
	if f.framing == 0 && f.at == 0 && f.broken == nil {
		return f.header()
	}
	return nil
}

// unfinished returns what to say of bytes at the Reader's offset that are not a frame, while
// more may be written: io.EOF, or damage that it passes over.
func (f *Reader) unfinished(why error) error {
	from := f.at
	next, err := f.find(from + 1)
	if err != nil {
		return err
	}
	if next == f.size {
		f.buf = f.buf[:0] // what was read may have been half of a write
		return io.EOF
	}
	f.at, f.broken = next, nil
	return &CorruptError{Offset: from, Bytes: next - from, Err: why}
}

// MaxPayload makes the Reader take no frame with a longer payload for one: its length is
// damaged. Without it such a length hides what follows until as much was written.
func (f *Reader) MaxPayload(n int64) { f.most = n }
