package tap

import (
	"math"
	"os"
	"time"
)

// clean removes segments older than MaxAge. While the total size exceeds MaxBytes, it also removes
// the oldest segments. It never removes the open segment. If another process has removed the file
// of the open segment, clean finishes the segment. It also updates the stats.
func (w *writer) clean() {
	w.cleaned = time.Now()
	list, err := segments(w.cfg.Dir)
	if err != nil {
		return // begin recreates the folder
	}
	if w.file != nil && !w.isThere() {
		w.finish(false)
	}
	room := w.cfg.MaxBytes - w.cfg.SegmentBytes // the open segment can grow to SegmentBytes
	var closed int64
	for _, seg := range list {
		if !w.isOpen(seg) {
			closed += seg.bytes
		}
	}
	removed := int64(0)
	kept := list[:0]
	for _, seg := range list {
		old := w.cleaned.Sub(seg.ended) > w.cfg.MaxAge
		if !w.isOpen(seg) && (old || closed > room) && os.Remove(segmentPath(w.cfg.Dir, seg.number)) == nil {
			closed -= seg.bytes
			removed++
			continue
		}
		kept = append(kept, seg)
	}
	s := w.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Removed += removed
	s.stats.SegmentBytes, s.stats.Oldest = 0, time.Time{}
	if len(kept) > 0 {
		s.stats.Oldest = begunAt(kept[0].number)
	}
	for _, seg := range kept {
		s.stats.SegmentBytes += seg.bytes
	}
}

// begunAt returns the start time of the segment with this number.
func begunAt(number uint64) time.Time {
	return time.UnixMilli(int64(min(number, math.MaxInt64))) //nolint:gosec // the value is bounded
}

func (w *writer) isOpen(seg segment) bool { return w.file != nil && seg.number == w.number }

// isThere reports whether the open segment's name still refers to the open file.
func (w *writer) isThere() bool {
	a, err := w.file.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(segmentPath(w.cfg.Dir, w.number))
	return err == nil && os.SameFile(a, b)
}
