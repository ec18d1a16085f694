package tap

import (
	"cmp"
	"errors"

	"github.com/rollout-rl/rollout/sink/frame"
)

// ReaderStats counts what a Reader has read, and what it could not read.
type ReaderStats struct {
	// Calls counts the calls that Next returned, and the skipped calls from before Since.
	Calls, Segments, Bytes int64
	// Damaged counts damaged places in segments. DamagedBytes counts their bytes.
	Damaged, DamagedBytes int64
	// Torn counts segments without an orderly end, because their tap was killed or could not write.
	// Calls that the tap had not yet written are missing.
	Torn int64
	// Dropped counts calls that the tap reported as dropped.
	Dropped int64
	// Lost counts calls in damaged places, by the gaps in the numbers. Orphans counts calls that
	// cannot be decoded because they begin like a lost call.
	Lost, Orphans int64
	// Removed counts segments that were removed before they were read to the end.
	Removed int64
	// Errors counts failed reads that were retried. Err is the last error, or nil after a success.
	Errors int64
	Err    error
}

// Plus returns the sums of s and o. Err is s.Err, or o.Err if that is nil.
func (s ReaderStats) Plus(o ReaderStats) ReaderStats {
	return ReaderStats{
		Calls: s.Calls + o.Calls, Segments: s.Segments + o.Segments, Bytes: s.Bytes + o.Bytes,
		Damaged: s.Damaged + o.Damaged, DamagedBytes: s.DamagedBytes + o.DamagedBytes, Torn: s.Torn + o.Torn, Dropped: s.Dropped + o.Dropped,
		Lost: s.Lost + o.Lost, Orphans: s.Orphans + o.Orphans, Removed: s.Removed + o.Removed, Errors: s.Errors + o.Errors, Err: cmp.Or(s.Err, o.Err),
	}
}

// Stats returns the counts so far.
func (r *Reader) Stats() ReaderStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

func (r *Reader) ended() {
	r.tear()
	r.leave()
}

// tear counts the open segment as torn if it has no end.
func (r *Reader) tear() {
	if r.dec.end == endNone && !r.torn {
		r.torn = true
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stats.Torn++
	}
}

// follows counts the losses between the previous segment and this one. r.mu is held.
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

// damaged counts damage reported by frames, and reports whether err is damage.
func (r *Reader) damaged(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, torn := errors.AsType[*frame.TornError](err); torn {
		return true // ended counts it
	}
	c, corrupt := errors.AsType[*frame.CorruptError](err)
	if corrupt {
		r.stats.Damaged++
		r.stats.DamagedBytes += c.Bytes
	}
	return corrupt
}
