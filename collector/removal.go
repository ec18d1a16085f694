package collector

import (
	"context"
	"sync"
	"time"
)

// removals bounds the time for the removal of agents at an endpoint. A server that does not answer
// delays a run by about one Config.CloseTimeout in total, not by one per sample.
//
// If a removal fails late and no other removal has succeeded since it began, the endpoint becomes
// mute. At a mute endpoint, removals get little time, including removals in progress. Now and then
// a removal gets more time, because the server might be slow rather than dead. A successful removal
// ends the mute state. Agents that were not removed stay on the server until agent.Clean finds them
// by their tags.
type removals struct {
	mute flag

	mu    sync.Mutex
	last  time.Time // time of the last successful removal
	tried time.Time // time at which a removal last got more time
}

// These constants are divisors of Config.CloseTimeout. At a mute endpoint, a removal gets
// CloseTimeout/shortPart. Once per CloseTimeout/betweenPart, a removal gets
// CloseTimeout/patientPart. By default, these are 1 s, and 5 s once per 10 s. A failed removal
// counts as late after CloseTimeout/latePart, because the client's own time limit or retries can
// end it before CloseTimeout.
const (
	shortPart   = 30
	patientPart = 6
	betweenPart = 3
	latePart    = 4
)

// begin returns a context for one removal, which ends after limit at the latest. The caller must
// pass the result of the removal to the returned function.
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
