package frame

import "io"

// NewGrowing returns a Reader for a file that is still being written. Call Grow to set the length
// of the file.
func NewGrowing(r io.ReaderAt, want Header) *Reader {
	return &Reader{r: r, h: want, open: true}
}

// Grow sets the current length of the file. more must be true if the file can grow further. After a
// call to Grow, Next can return more frames even if it has already returned io.EOF. When the header
// is complete, Grow returns the same errors as [NewReader].
//
// While the file can grow, Next returns io.EOF at an incomplete frame at the end of the file,
// because the write of that frame might still be in progress. If a whole frame follows, Next returns
// a *CorruptError, because a writer writes frames in order.
func (f *Reader) Grow(size int64, more bool) error {
	f.size, f.open, f.scanned = max(size, f.at), more, false
	if f.at == 0 && f.broken == nil {
		return f.header()
	}
	return nil
}

// unfinished is called if the bytes at the Reader's offset are not a frame and the file can still
// grow. If a whole frame follows, unfinished skips the bytes and returns a *CorruptError. Otherwise
// it returns io.EOF.
func (f *Reader) unfinished(why error) error {
	from := f.at
	next, err := f.find(from + 1)
	if err != nil {
		return err
	}
	if next == f.size {
		f.buf = f.buf[:0] // the write might be in progress, so the bytes must be reread
		return io.EOF
	}
	f.at, f.broken = next, nil
	return &CorruptError{Offset: from, Bytes: next - from, Err: why}
}

// MaxPayload sets the maximum size of a payload. The Reader treats a frame with a larger payload as
// damaged. Without a limit, a frame with a wrong length would hide the frames after it until the
// file has grown by that length.
func (f *Reader) MaxPayload(n int64) { f.most = n }
