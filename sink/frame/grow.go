package frame

import "io"

// NewGrowing returns a Reader for a file that is still being written. Call Grow to set its length.
func NewGrowing(r io.ReaderAt, want Header) *Reader {
	return &Reader{r: r, h: want, open: true}
}

// Grow sets the current length of the file, and whether more can be written. Next then continues
// after its io.EOF. Once the header is complete, Grow returns the errors of [NewReader].
//
// While more can be written, Next returns io.EOF at an incomplete frame at the end of the file,
// because its write can still be in progress. If a whole frame follows, Next returns a
// *CorruptError: a writer writes frames in order.
func (f *Reader) Grow(size int64, more bool) error {
	f.size, f.open, f.scanned = max(size, f.at), more, false
	if f.at == 0 && f.broken == nil {
		return f.header()
	}
	return nil
}

// unfinished returns the error for bytes at the Reader's offset that are not a frame, while more
// can be written. If a whole frame follows, it skips the bytes and returns a *CorruptError.
// Otherwise it returns io.EOF.
func (f *Reader) unfinished(why error) error {
	from := f.at
	next, err := f.find(from + 1)
	if err != nil {
		return err
	}
	if next == f.size {
		f.buf = f.buf[:0] // the write can be in progress; read the bytes again
		return io.EOF
	}
	f.at, f.broken = next, nil
	return &CorruptError{Offset: from, Bytes: next - from, Err: why}
}

// MaxPayload limits the payload size: the Reader treats a longer frame as damaged. Without a limit,
// a damaged length hides the following frames until the file has grown by that length.
func (f *Reader) MaxPayload(n int64) { f.most = n }
