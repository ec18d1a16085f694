package collector

import (
	"context"
	"time"
)

// A refusals is a row of refusals by a busy server that one sample met without any other
// answer.
type refusals struct {
	since   time.Time // the first; zero: it met none
	n       int
	cleared int // of the last, those after which the server had room for a check
}

// A server that turns a sample away time and again, and right afterwards has room for
// something else, is not busy. After checkAfter refusals each one is followed by a
// check. A place may become free just then, so that it takes clearAfter of them in a row
// until the refusals are the sample's own.
const (
	checkAfter = 5
	clearAfter = 3
)

// turnedAway notes that the server is too busy for the sample, and reports whether that
// is held against it: the server is busy for longer than Config.BusyMax, or turns only
// this sample away.
func (w *worker) turnedAway(ctx context.Context, cl *claim) bool {
	r := &cl.refused
	if r.since.IsZero() {
		r.since = time.Now()
	}
	r.n++
	switch {
	case time.Since(r.since) >= w.c.cfg.BusyMax:
		return true
	case r.n < checkAfter:
		return false
	case w.check(ctx):
		r.cleared++
	default:
		r.cleared = 0
	}
	return r.cleared >= clearAfter
}
