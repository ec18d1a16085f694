package collector

import (
	"context"
	"sync"
	"time"
)

// removals bounds how long the removal of agents takes at an endpoint. A server that does
// not answer costs a run one Config.CloseTimeout, and not one for each sample.
//
// A removal that fails late, while no other succeeded, makes the endpoint mute. While it is
// mute, removals get little time, those in progress too. Now and then one gets more, in case
// the server is only slow. A removal that succeeds ends that. Agents that are not removed stay
// on the server. agent.Clean finds them by their tags: the command calls it at the end of a
// run. The verb clean finds them later.
type removals struct {
	mute flag

	mu    sync.Mutex
	last  time.Time // when an agent was last removed
	tried time.Time // when a removal last got more time
}

// Divisors of Config.CloseTimeout. At a mute endpoint a removal gets one shortPart of it, and
// one patientPart every betweenPart: 1 s, and 5 s every 10 s, of the default. A removal that
// failed counts as late after one latePart, because a client's own time limit or repetitions
// may end it before CloseTimeout.
const (
	shortPart   = 30
	patientPart = 6
	betweenPart = 3
	latePart    = 4
)

// begin returns a context for one removal, which may take up to limit, and a function that
// must be called with its result.
func (r *removals) begin(ctx context.Context, limit time.Duration) (context.Context, func(error)) {
	began, may := time.Now(), limit
	mute := r.mute.raised()
	if mute.Err() != nil {
		may = limit / shortPart
		r.mu.Lock()
		if began.Sub(r.tried) >= limit/betweenPart {
			r.tried, may = began, limit/patientPart
		}
		r.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, may)
	hurry := func() bool { return true }
	if may == limit {
		hurry = context.AfterFunc(mute, func() { time.AfterFunc(limit/shortPart, cancel) })
	}
	return ctx, func(err error) {
		late := ctx.Err() != nil || time.Since(began) >= limit/latePart
		hurry()
		cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case err == nil:
			r.last = time.Now()
			r.mute.set(false)
		case late && !r.last.After(began):
			if !r.mute.isUp() {
				r.tried = time.Now()
			}
			r.mute.set(true)
		}
	}
}

// close removes the agent from the server. It has its own time, also when the run is
// stopping.
func (a *attempt) close(ctx context.Context, agent Agent) {
	c := a.w.c
	a.enter(StageClose)
	ctx, done := a.w.ep.removals.begin(context.WithoutCancel(ctx), c.cfg.CloseTimeout)
	err := agent.Close(ctx)
	done(err)
	if a.alive = err != nil; !a.alive {
		a.cl.left = nil // nothing is left to take over
	}
	if err != nil {
		c.counters.update(func(s *Stats) { s.CloseFailures++ })
		c.cfg.Events.CloseFailed(a.Attempt, a.w.ep.Name, err)
	}
}
