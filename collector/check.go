package collector

import (
	"context"
	"time"
)

// A Checker is a Backend that can say whether its server works at all. Samples that
// fail for ever on a server that works, such as a prompt that it cannot take, look like
// a server that is down when nothing else is left to do.
type Checker interface {
	// Check has an agent of the run's kind answer something that nobody keeps. An
	// error is classified as that of an attempt is.
	Check(ctx context.Context, runID string) error
}

// checkTimeout bounds a check. A server that takes longer is as good as down.
const checkTimeout = time.Minute

// check reports whether the server is known to work.
func (w *worker) check(ctx context.Context) bool {
	checker, ok := w.ep.Backend.(Checker)
	if !ok || w.ping(ctx) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, min(checkTimeout, w.c.cfg.AttemptTimeout))
	defer cancel()
	err := checker.Check(ctx, w.c.cfg.RunID)
	class := Classify(err)
	return ctx.Err() == nil && (err == nil || !class.Retryable() && !class.Fatal())
}

// suspect has the endpoint checked after a failure that took it down, or of a sample
// that was let in to see whether it is back. Where the server works, the endpoint is
// not down; where it does not, and never did, it is lost.
func (w *worker) suspect(ctx context.Context, cl *claim, v *verdict, cause error) {
	probe := cl.permit != nil && cl.permit.probe
	if v.wentDown {
		w.ep.gate.goDown()
	}
	if !v.wentDown && !probe || v.lost {
		if v.wentDown {
			w.c.cfg.Events.endpointDown(w.ep.Name, cause)
			w.c.shift()
		}
		return
	}
	if w.check(ctx) {
		w.ep.health.acquit()
		w.ep.gate.goUp()
		w.c.shift()
		v.charge = true
		if !v.wentDown {
			w.c.cfg.Events.endpointDown(w.ep.Name, nil)
		}
		return
	}
	if v.wentDown {
		w.c.cfg.Events.endpointDown(w.ep.Name, cause)
		w.c.shift()
	}
	if ctx.Err() == nil && !w.ep.pulsed && w.ep.health.condemn() {
		v.lost, v.wentLost = true, true
	}
}
