package frame

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// A Writer appends frames to a file. It writes each frame with a single Write call. The caller must
// call Synced after each sync of the file.
type Writer struct {
	w       io.Writer
	size    int64
	synced  int64 // durable length
	vouched int64 // durable length in the last mark, or the end of the mark if the mark vouches for all earlier frames
	buf     []byte
	sums    summer
	err     error // the first write error; after an error, the end of the file is undefined
}

// keepBuffer is the largest buffer that a Writer reuses.
const keepBuffer = 4 << 20

// NewWriter returns a Writer for w and writes the header. w must be empty.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	if len(h.Kind) == 0 || len(h.Kind) > kindLen {
		return nil, fmt.Errorf("frame: kind %q: must have 1 to %d bytes", h.Kind, kindLen)
	}
	if h.Version == 0 {
		return nil, fmt.Errorf("frame: the version of kind %q is 0, but must be ≥ 1", h.Kind)
	}
	fw := &Writer{w: w, buf: appendHeader(nil, h)}
	return fw, fw.write(fw.buf)
}

// Continue returns a Writer that appends to a file of size bytes. The first synced bytes of the file
// are durable. The file must end with a whole frame: if it ends with a torn part, the caller must
// first truncate the file. w must write at the end of the file.
func Continue(w io.Writer, size, synced int64) *Writer {
	return &Writer{w: w, size: size, synced: min(synced, size)}
}

// Write appends a frame with the payload. It keeps no reference to the payload.
func (w *Writer) Write(payload []byte) error {
	return w.End(append(w.Begin(), payload...))
}

// Begin returns a buffer that has room for the head of a frame. The caller must append one payload
// to the buffer and pass it to End.
func (w *Writer) Begin() []byte {
	if cap(w.buf) > keepBuffer || cap(w.buf) < Overhead {
		w.buf = make([]byte, Overhead, 4<<10)
	}
	return w.buf[:Overhead]
}

// End writes the frame in buf. Begin must have returned buf, and the caller must have appended the
// payload. After the call, the Writer owns buf again.
//
// After a write error, an unknown part of the frame is in the file, so the Writer refuses further
// frames.
func (w *Writer) End(buf []byte) error {
	w.buf = buf
	payload := buf[Overhead:]
	if uint64(len(payload)) > math.MaxUint32 {
		return fmt.Errorf("frame: the payload has %d bytes, but must be < 4 GiB", len(payload))
	}
	return w.seal(mark, buf)
}

// seal fills in the head of the frame in buf and writes the frame.
func (w *Writer) seal(begin string, buf []byte) error {
	copy(buf, begin)
	binary.LittleEndian.PutUint32(buf[4:], uint32(len(buf)-Overhead))
	binary.LittleEndian.PutUint64(buf[8:], uint64(w.synced))
	binary.LittleEndian.PutUint32(buf[16:], w.sums.sum(w.size, buf[:16], buf[Overhead:]))
	return w.write(buf)
}

func (w *Writer) write(b []byte) error {
	if w.err != nil {
		return w.err
	}
	n, err := w.w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	w.err = err
	w.size += int64(n)
	return err
}

// Synced writes a mark, which records that all frames so far are durable. The mark itself need not
// be durable.
func (w *Writer) Synced() error { return w.SyncedTo(w.size) }

// SyncedTo is like Synced, but records only the first size bytes as durable. It is meant for
// callers that write frames while the sync is running.
func (w *Writer) SyncedTo(size int64) error {
	w.synced = max(w.synced, min(size, w.size))
	if w.synced <= max(w.vouched, HeaderSize) {
		return w.err // there is no new frame to vouch for
	}
	all := w.synced == w.size
	err := w.seal(synced, w.Begin())
	if w.vouched = w.synced; all {
		w.vouched = w.size
	}
	return err
}

// Size returns the length of the file.
func (w *Writer) Size() int64 { return w.size }
