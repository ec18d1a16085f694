package tap

import (
	"cmp"
	"errors"

	"github.com/rollout-rl/rollout/sink/frame"
)

// ReaderStats counts what a Reader has read and what it was unable to read.
type ReaderStats struct {
	// Calls counts the calls that Next returned, and the calls that Next skipped because of Since.
	Calls, Segments, Bytes int64
	// Damaged counts the damaged places in segments. DamagedBytes is the total size of these
	// places.
	Damaged, DamagedBytes int64
	// Torn counts segments without an end payload. Such a segment is the result of a killed tap or
	// a failed write, and the calls that the tap had not yet written are missing.
	Torn int64
	// Dropped counts calls that the tap reported as dropped.
	Dropped int64
	// Lost counts missing call numbers. The calls with these numbers were in damaged places.
	// Orphans counts calls that cannot be decoded because they refer to a missing call.
	Lost, Orphans int64
	// Removed counts segments that were removed before the Reader reached their end.
	Removed int64
	// Errors counts failed reads that the Reader retried. Err is the last error, or nil after a
	// success.
	Errors int64
	Err    error
}

// Plus returns the sum of s and o. Err is s.Err, or o.Err if s.Err is nil.
func (s ReaderStats) Plus(o ReaderStats) ReaderStats {
	return ReaderStats{
		Calls: s.Calls + o.Calls, Segments: s.Segments + o.Segments, Bytes: s.Bytes + o.Bytes,
		Damaged: s.Damaged + o.Damaged, DamagedBytes: s.DamagedBytes + o.DamagedBytes, Torn: s.Torn + o.Torn, Dropped: s.Dropped + o.Dropped,
		Lost: s.Lost + o.Lost, Orphans: s.Orphans + o.Orphans, Removed: s.Removed + o.Removed, Errors: s.Errors + o.Errors, Err: cmp.Or(s.Err, o.Err),
	}
}

// Stats returns the current stats.
func (r *Reader) Stats() ReaderStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

func (r *Reader) ended() {
	r.tear()
	r.leave()
}

// tear counts the open segment as torn if it has no end payload.
func (r *Reader) tear() {
	if r.dec.end == endNone && !r.torn {
		r.torn = true
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stats.Torn++
	}
}

// follows counts a segment that was removed or torn between the previous segment and the segment
// with head h. The caller must hold r.mu.
func (r *Reader) follows(h head) {
	before := r.before
	switch {
	case before.number == 0:
	case before.number != h.before:
		r.stats.Removed++
	case before.process != h.process && before.end == endOn:
		r.stats.Torn++
	}
}

// damaged reports whether err describes damage to a segment. If so, it also counts the damage.
func (r *Reader) damaged(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, torn := errors.AsType[*frame.TornError](err); torn {
		return true // r.ended counts the torn segment
	}
	c, corrupt := errors.AsType[*frame.CorruptError](err)
	if corrupt {
		r.stats.Damaged++
		r.stats.DamagedBytes += c.Bytes
	}
	return corrupt
}
