package tap

import (
	"cmp"
	"errors"

	"github.com/rollout-rl/rollout/sink/frame"
)

// ReaderStats says what a Reader has read, and what it could not read.
type ReaderStats struct {
	// Calls counts the calls that Next returned or that were added before Since.
	Calls, Segments, Bytes int64
	// Damaged counts places in segments that are damaged, with their bytes.
	Damaged, DamagedBytes int64
	// Torn counts segments that were not ended in order, because their tap was killed or
	// could not write: the calls are missing that it had not written.
	Torn int64
	// Dropped counts calls that the tap says it could not keep.
	Dropped int64
	// Lost counts calls that were there, by their numbers, and are in damaged places.
	// Orphans counts calls that cannot be read because they begin like a lost one.
	Lost, Orphans int64
	// Removed counts how often segments were removed before they were read to their end.
	Removed int64
	// Errors counts what went wrong when the spool was read, and was tried again. Err is
	// the last one, and nil once it went well.
	Errors int64
	Err    error
}

// Plus returns the sums. Err is that of s or else that of o.
func (s ReaderStats) Plus(o ReaderStats) ReaderStats {
	return ReaderStats{
		Calls: s.Calls + o.Calls, Segments: s.Segments + o.Segments, Bytes: s.Bytes + o.Bytes,
		Damaged: s.Damaged + o.Damaged, DamagedBytes: s.DamagedBytes + o.DamagedBytes, Torn: s.Torn + o.Torn, Dropped: s.Dropped + o.Dropped,
		Lost: s.Lost + o.Lost, Orphans: s.Orphans + o.Orphans, Removed: s.Removed + o.Removed, Errors: s.Errors + o.Errors, Err: cmp.Or(s.Err, o.Err),
	}
}

// Stats returns what was read.
func (r *Reader) Stats() ReaderStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// ended leaves a segment that was read to its end.
func (r *Reader) ended() {
	r.tear()
	r.leave()
}

// tear counts the open segment as torn if it has no end, and none will come.
func (r *Reader) tear() {
	if r.dec.end == endNone && !r.torn {
		r.torn = true
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stats.Torn++
	}
}

// follows counts what is missing between the segment that was read last and this one. mu is
// held.
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

// damaged counts damage that the frames were told of, and reports whether err is that.
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
