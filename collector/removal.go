package collector

import (
	"context"
	"sync"
	"time"
)

// removals bounds the time to remove agents at an endpoint. A server that does not answer costs a
// run one Config.CloseTimeout, and not one per sample.
//
// If a removal fails late and no other has succeeded meanwhile, the endpoint is mute: removals get
// little time, including removals in progress. Now and then a removal gets more time, because the
// server can be slow and not dead. A successful removal ends the mute state. Remaining agents stay
// on the server until agent.Clean finds them by their tags.
type removals struct {
	mute flag

	mu    sync.Mutex
	last  time.Time // last successful removal
	tried time.Time // when a removal last got more time
}

// Divisors of Config.CloseTimeout. At a mute endpoint a removal gets one shortPart, and one removal
// per betweenPart gets one patientPart. By default these are 1 s, and 5 s every 10 s. A failed
// removal is late after one latePart, because the client's time limit or retries can end it before
// CloseTimeout.
const (
	shortPart   = 30
	patientPart = 6
	betweenPart = 3
	latePart    = 4
)

// begin returns a context for one removal, at most for limit. The caller must pass the result of
// the removal to the returned function.
func (r *removals) begin(ctx context.Context, limit time.Duration) (context.Context, func(error)) {
	began, timeout := time.Now(), limit
	mute := r.mute.raised()
	if mute.Err() != nil {
		timeout = limit / shortPart
		r.mu.Lock()
		if began.Sub(r.tried) >= limit/betweenPart {
			r.tried, timeout = began, limit/patientPart
		}
		r.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	stopShorten := func() bool { return true }
	if timeout == limit {
		stopShorten = context.AfterFunc(mute, func() { time.AfterFunc(limit/shortPart, cancel) })
	}
	return ctx, func(err error) {
		late := ctx.Err() != nil || time.Since(began) >= limit/latePart
		stopShorten()
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

// close removes the agent from the server, even during a stop.
func (a *attempt) close(ctx context.Context, agent Agent) {
	c := a.w.c
	a.setStage(StageClose)
	ctx, done := a.w.ep.removals.begin(context.WithoutCancel(ctx), c.cfg.CloseTimeout)
	err := agent.Close(ctx)
	done(err)
	a.agentRemoved, a.agentMayExist = err == nil, err != nil
	if err != nil {
		c.counters.update(func(s *Stats) { s.CloseFailures++ })
		c.cfg.Events.CloseFailed(a.Attempt, a.w.ep.Name, err)
	}
}
