package collector

import (
	"context"
	"sync"
	"time"
)

// removals limits the time that the removal of agents at an endpoint can take. A server that does
// not answer delays a run by about one Config.CloseTimeout in total, not by one CloseTimeout per
// sample.
//
// If a removal fails late and no other removal has succeeded since the failed removal started, the
// endpoint becomes mute. At a mute endpoint, all removals get little time, including the removals
// in progress. From time to time, a removal gets more time, because the server might be slow rather
// than down. A successful removal ends the mute state. Agents that were not removed stay on the
// server until agent.Clean finds them by their tags and removes them.
type removals struct {
	mute flag

	mu    sync.Mutex
	last  time.Time // time of the last successful removal
	tried time.Time // the last time that a removal got more time
}

// These constants are divisors of Config.CloseTimeout. At a mute endpoint, a removal gets
// CloseTimeout/shortPart. Once per CloseTimeout/betweenPart, a removal gets
// CloseTimeout/patientPart. By default, a removal gets 1 s, or 5 s once every 10 s. A removal that
// fails after CloseTimeout/latePart counts as late, because the client's own time limit or retries
// can end a removal before CloseTimeout.
const (
	shortPart   = 30
	patientPart = 6
	betweenPart = 3
	latePart    = 4
)

// begin returns a context for one removal. The context ends after the given limit at the latest.
// The caller must pass the result of the removal to the returned function.
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

// close removes the agent from the server, even if the run is being stopped.
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
