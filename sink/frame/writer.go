package frame

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// A Writer appends frames to a file. Each is written as a whole, by one Write.
// When they become durable is the caller's to decide, and to tell with Synced.
type Writer struct {
	w       io.Writer
	size    int64
	synced  int64 // what is durable
	vouched int64 // up to where a mark, or nothing but marks, says so
	buf     []byte
	sums    summer
	err     error // the first; the file's end is unknown from then on
}

// keepBuffer is the largest buffer that a Writer keeps from frame to frame.
const keepBuffer = 4 << 20

// NewWriter begins a file: it writes the header to w, which must be empty.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	if len(h.Kind) == 0 || len(h.Kind) > kindLen {
		return nil, fmt.Errorf("frame: kind %q: must have 1 to %d bytes", h.Kind, kindLen)
	}
	if h.Version == 0 {
		return nil, fmt.Errorf("frame: kind %q: version 0: versions count from 1", h.Kind)
	}
	fw := &Writer{w: w, buf: appendHeader(nil, h)}
	return fw, fw.write(fw.buf)
}

// Write appends one frame. The payload stays the caller's.
func (w *Writer) Write(payload []byte) error {
	return w.End(append(w.Begin(), payload...))
}

// Begin returns a buffer to append one payload to, for End. There is something in
// it already: the payload must be appended.
func (w *Writer) Begin() []byte {
	if cap(w.buf) > keepBuffer || cap(w.buf) < Overhead {
		w.buf = make([]byte, Overhead, 4<<10)
	}
	return w.buf[:Overhead]
}

// End writes the frame in buf, which is what Begin returned with the payload
// appended. The buffer is the Writer's again.
//
// After an error nothing more can be written: how much of the frame is in the file
// is not known.
func (w *Writer) End(buf []byte) error {
	w.buf = buf
	payload := buf[Overhead:]
	if uint64(len(payload)) > math.MaxUint32 {
		return fmt.Errorf("frame: a payload of %d bytes: must be < 4 GiB", len(payload))
	}
	return w.seal(mark, buf)
}

// seal fills in what stands before the payload, and writes the frame.
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

// Synced says that all that was written so far is durable now. It writes a mark that
// says so, for the frames before it; the mark itself need not be durable.
func (w *Writer) Synced() error { return w.SyncedTo(w.size) }

// SyncedTo says that the first size bytes are durable now, where more were written
// while they were synced.
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

// Size is the length of the file.
func (w *Writer) Size() int64 { return w.size }
