package collector

import (
	"errors"
	"fmt"

	"github.com/rollout-rl/rollout/collector/breaker"
)

// resume sets the claim's state from what earlier processes left of the sample.
func (cl *claim) resume(left *Left) {
	cl.n, cl.left, cl.failed = left.Attempts, left.Open, left.Failed
	if cl.left != nil {
		cl.n = max(cl.n, cl.left.N) // never reuses a number, whatever Left returns
	}
	if cl.failed == ClassNone { // otherwise its budget is reset
		cl.budget = breaker.Resume(left.Charged, left.DataCharged)
	}
	cl.kind = kindAfter(cl.failed, cl.n)
}

// reattaches reports whether this worker can take over the attempt.
func (w *worker) reattaches(left *OpenAttempt) bool {
	_, ok := w.ep.Backend.(Reattacher)
	return ok && left.Endpoint == w.ep.Name
}

// tookOverNothing reports whether this attempt was a takeover that failed: nothing is left, or the
// lookup failed for good.
func (a *attempt) tookOverNothing(v breaker.Verdict) bool {
	if a.Kind != KindReattach || a.class == ClassCensored {
		return false
	}
	return a.class == ClassLost || v == breaker.Fail && stageOf(a.err) == StageOpen
}

func (w *worker) goneElsewhere(cl *claim) error {
	return w.gone(cl, cl.left.N, safeError{fmt.Errorf("%w: it belongs to endpoint %q", ErrGone, cl.left.Endpoint)})
}

// gone gives up open attempt n because of err, and refunds the charges for its lookup.
func (w *worker) gone(cl *claim, n int, err error) error {
	if !errors.Is(err, ErrGone) {
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	w.c.counters.update(func(s *Stats) { s.Gone++ })
	w.c.counters.remade(cl.last, ClassLost)
	cl.budget.Forgive()
	w.c.cfg.Events.Reattached(cl.numbered(w.c.cfg.RunID, n, KindReattach), w.ep.Name, err)
	cl.left, cl.kind = nil, KindInfraRetry
	return w.noteEnd(cl, n, ClassLost, false)
}
