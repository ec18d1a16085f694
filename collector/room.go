package collector

import (
	"context"
	"time"
)

// claim waits for room at the endpoint and then for a sample. It returns false where
// there is nothing left to do for this worker: the run ends, or its endpoint is lost.
func (w *worker) claim(ctx context.Context) (claim, bool) {
	for {
		p := w.ep.gate.enter(ctx, false, w.finished, w.ep.lost)
		if p == nil {
			return claim{}, false
		}
		work, moved := w.work, w.c.relay.out
		if w.bound != nil {
			work, moved = nil, nil
		}
		var cl claim
		ok := false
		select { // what comes from another endpoint was begun
		case cl = <-moved:
			cl.permit = p
			return cl, true
		default:
		}
		select {
		case cl, ok = <-w.bound:
			if !ok {
				w.bound = nil
				w.ep.gate.leave(p)
				continue
			}
		case cl, ok = <-moved:
		case cl, ok = <-work:
		case <-p.taken:
			continue
		case <-w.ep.lost:
		case <-w.finished:
		case <-ctx.Done():
		}
		if !ok {
			w.ep.gate.leave(p)
			return claim{}, false
		}
		cl.permit = p
		return cl, true
	}
}

// room sees to it that the sample may be worked on: by the permit that it was claimed
// with, or by waiting for another. It is without one where the sample is not to be
// worked on here any more, or not now: see moves.
func (w *worker) room(ctx context.Context, cl *claim, since time.Time) error {
	away := w.awayFor(cl).raised().Done()
	for cl.permit == nil || !w.ep.gate.use(cl.permit) {
		cl.permit = w.ep.gate.enter(ctx, true, w.ep.lost, w.c.drain, away)
		if cl.permit != nil {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	waited := time.Since(since)
	cl.admitted += waited
	w.c.counters.update(func(s *Stats) { s.AdmissionWait += waited })
	return nil
}

// working is how many samples can fail at the endpoint before one of them has failed
// twice.
func (e *endpoint) working() int {
	if !e.health.known() {
		return e.gate.limit() // the first failures come before all are in hand
	}
	return min(e.gate.limit(), int(e.hands.Load()))
}

// charge holds the last attempt against the retries: for now, where it is part of a
// streak that may yet take the endpoint down.
func (cl *claim) charge(row *streak) {
	cl.charged++
	switch {
	case row == nil:
	case cl.streak == row:
		cl.lent++
	default:
		cl.streak, cl.lent = row, 1
	}
}

// repay takes back what the sample was charged in a streak that took the endpoint
// down.
func (cl *claim) repay() {
	if cl.streak == nil {
		return
	}
	select {
	case <-cl.streak.over:
		if cl.streak.down && !cl.streak.own.Load() {
			cl.charged -= cl.lent
		}
		cl.streak, cl.lent = nil, 0
	default:
	}
}

// mournFor is how long a sample without retries left waits for the verdict on its
// endpoint: the requests of a server that dies end at about the same moment, and
// answers that it gave before may be among them.
const mournFor = time.Second

// mourn waits a moment before the sample is given up, and reports whether its failures
// were those of an endpoint that went down.
func (w *worker) mourn(ctx context.Context, cl *claim, row *streak) bool {
	if row == nil {
		return false
	}
	timer := time.NewTimer(mournFor)
	defer timer.Stop()
	over := row.over
	for {
		select {
		case <-over:
			over = nil
			if !row.down {
				continue // an answer: it may be an older one
			}
		case <-timer.C:
		case <-ctx.Done():
		}
		break
	}
	if down, _ := w.ep.health.state(); !down {
		return false
	}
	cl.charged -= cl.lent
	cl.streak, cl.lent = nil, 0
	return true
}
