package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/wait"
)

// The pause between two lookups of a server run grows from firstLook to lastLook. A quarter of each
// pause is random, so that a process with hundreds of open attempts does not poll in bursts after a
// restart.
const (
	firstLook = 200 * time.Millisecond
	lastLook  = 10 * time.Second
)

// await waits until the server run has ended and returns the server's record of the run. If the run
// adds no step for Config.SilentAfter, await reports the run to Config.Progress. After
// Config.StuckAfter without a new step, await returns an error that wraps collector.ErrGone.
func (g *agent) await(ctx context.Context, id string) (*runRecord, error) {
	g.reportRun(id)
	g.maybeRunning = true // until the run has ended
	var (
		run   *letta.Run
		steps []letta.Step
		seen  = -1 // number of steps seen so far, or -1
		grew  time.Time
		told  = time.Now()
	)
	for pause := firstLook; ; pause = min(pause*3/2, lastLook) {
		err := g.retryLookup(ctx, func() (err error) { run, err = g.client.Run(ctx, id); return err })
		switch {
		case letta.IsNotFound(err):
			return nil, goneErrorf("server run %s was deleted", id)
		case err != nil:
			return nil, err
		case run.Ended():
			return g.readRecord(ctx, run)
		}
		if pause == lastLook || g.conversation != nil || seen < 0 {
			if err = g.retryLookup(ctx, func() (err error) { steps, err = g.client.RunSteps(ctx, id); return err }); err != nil {
				return nil, err
			}
		}
		if g.conversation != nil && letta.StepsEnded(steps) {
			g.rollout.Run(id).SetSteps(steps)
			return g.readRecord(ctx, run)
		}
		if g.outage.Load() {
			// A send runs within the server's process and dies with it.
			return nil, goneErrorf("server run %s has status %s, but the server was down in the meantime", id, g.redactText(run.Status))
		}
		switch {
		case seen < 0:
			if grew, err = g.lastSign(ctx, run); err != nil {
				return nil, err
			}
			seen = len(steps)
		case len(steps) != seen:
			seen, grew = len(steps), time.Now()
		}
		silent := time.Since(grew)
		if silent > g.cfg.StuckAfter {
			return nil, goneErrorf("server run %s has status %s and made no progress for %v", id, g.redactText(run.Status), silent.Round(time.Second))
		}
		if silent > g.cfg.SilentAfter && time.Since(told) > g.cfg.SilentAfter {
			told = time.Now()
			g.progress(id, seen, silent)
		}
		if err := sleep(ctx, pause-pause/8+rand.N(pause/4+1)); err != nil { //nolint:gosec // jitter needs no secrecy
			return nil, fmt.Errorf("waiting for server run %s: %w", id, err)
		}
	}
}

// lastSign returns the last time at which the server is known to have worked on a run, by the local
// clock. This is the start of the run or the time of its newest message. If the server's clock or
// the start of the run is unknown, lastSign returns the current time.
func (g *agent) lastSign(ctx context.Context, run *letta.Run) (time.Time, error) {
	now := time.Now()
	offset, ok := g.client.Clock()
	if !ok || run.CreatedAt == "" {
		return now, nil
	}
	last, err := run.CreatedAt.Time()
	if err != nil {
		return now, nil //nolint:nilerr // an unknown timestamp format gives no time
	}
	var messages letta.Messages
	err = g.retryLookup(ctx, func() (err error) { messages, err = g.client.RunMessages(ctx, run.ID); return err })
	if err != nil {
		return now, err
	}
	for i := range messages {
		if at, err := messages[i].Date.Time(); err == nil && at.After(last) {
			last = at
		}
	}
	// Compute the result from now, which has a monotonic clock reading. The result then stays
	// correct if the system clock is set during the wait.
	return now.Add(-max(0, now.Sub(last.Add(-offset)))), nil
}

// sleep pauses for d. If ctx ends first, sleep returns the cause.
func sleep(ctx context.Context, d time.Duration) error {
	if wait.For(ctx, d) {
		return nil
	}
	return &classed{ctx.Err(), context.Cause(ctx)}
}
