package collector

import (
	"errors"
	"fmt"
)

// take notes what earlier processes left of the sample.
func (cl *claim) take(left *Left) {
	cl.attempts, cl.charged, cl.rerolled = left.Attempts, left.Charged, left.Rerolled
	cl.paid, cl.left, cl.failed = left.Charged, left.Open, left.Failed
	if cl.left != nil {
		cl.attempts = max(cl.attempts, cl.left.N) // no number twice, whatever Left says
	}
	if cl.failed != ClassNone {
		cl.charged, cl.rerolled, cl.paid = 0, 0, 0
	}
	cl.kind = kindAfter(cl.failed, cl.attempts)
}

// upcoming is the first attempt that is to be made.
func (cl *claim) upcoming(runID string) Attempt {
	a := cl.attempt(runID)
	if cl.left != nil {
		a.N, a.Kind = cl.left.N, KindReattach
	} else {
		a.N++
	}
	return a
}

// kindAfter is the kind of the attempt after n others, of which the last failed so.
func kindAfter(class Class, n int) Kind {
	switch {
	case n == 0:
		return KindFirst
	case class.Rerollable():
		return KindDataRetry
	}
	return KindInfraRetry
}

// reattaches says that this worker can take the attempt over.
func (w *worker) reattaches(left *OpenAttempt) bool {
	_, ok := w.ep.Backend.(Reattacher)
	return ok && left.Endpoint == w.ep.Name
}

// gone gives open attempt n up: nothing of it can be taken over. What looking for it was
// charged is given back.
func (w *worker) gone(cl *claim, n int, err error) error {
	last := cl.attempts
	cl.attempts, cl.kind = n, KindReattach
	w.c.counters.reattached(true)
	w.c.counters.rerolled(cl, ClassLost)
	if !errors.Is(err, ErrGone) {
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	cl.charged = cl.paid
	w.c.cfg.Events.reattached(cl.attempt(w.c.cfg.RunID), w.ep.Name, err)
	ended := w.end(cl, ClassLost, false)
	cl.left, cl.kind, cl.attempts = nil, KindInfraRetry, last
	return ended
}
