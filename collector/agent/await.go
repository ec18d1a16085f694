package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
)

// A memory is what the server keeps of a run: all that is left of a send whose
// answer was not read.
type memory struct {
	run      *letta.Run
	steps    []letta.Step // ascending
	messages letta.Messages
}

// Bounds of the pause between two looks at a run: it grows from the one to the other,
// and a quarter of it is random, so that a restart with hundreds of open attempts is
// no burst.
const (
	firstLook = 200 * time.Millisecond
	lastLook  = 10 * time.Second
)

// await waits until the run is over and reads what the server keeps of it. A run
// that adds no step for Config.StuckAfter is given up with collector.ErrGone; one that
// adds none for SilentAfter is told to Progress.
func (g *agent) await(ctx context.Context, id string) (*memory, error) {
	g.learned(id)
	g.mayRun = true // Close asks the server to stop a run that was not waited for to its end
	m := &memory{}
	grew, steps, told := time.Now(), -1, time.Now()
	for pause := firstLook; ; pause = min(pause*3/2, lastLook) {
		var err error
		if err = g.patiently(ctx, func() (err error) { m.run, err = g.client.Run(ctx, id); return err }); err != nil {
			if letta.IsNotFound(err) {
				return nil, gone("server run %s was deleted", id)
			}
			return nil, err
		}
		isOver := over(m.run)
		if isOver || pause == lastLook || g.conversation != nil || steps < 0 {
			if err = g.patiently(ctx, func() (err error) { m.steps, err = g.client.RunSteps(ctx, id); return err }); err != nil {
				return nil, err
			}
		}
		if isOver || g.conversation != nil && endedByStep(m.steps) {
			g.mayRun = false
			kept := g.rollout.Run(id)
			kept.SetSteps(m.steps)
			err = g.patiently(ctx, func() (err error) { m.messages, err = kept.Messages(ctx); return err })
			return m, err
		}
		if g.outage {
			// A send runs within the server's process and dies with it.
			return nil, gone("server run %s is %s, and the server was down", id, g.said(m.run.Status))
		}
		if steps < 0 {
			grew, err = g.lastSign(ctx, m.run)
			if err != nil {
				return nil, err
			}
			steps = len(m.steps)
		}
		if len(m.steps) != steps {
			steps, grew = len(m.steps), time.Now()
		}
		silent := time.Since(grew)
		if silent > g.cfg.StuckAfter {
			return nil, gone("server run %s is %s and did nothing for %v", id, g.said(m.run.Status), silent.Round(time.Second))
		}
		if silent > g.cfg.SilentAfter && time.Since(told) > g.cfg.SilentAfter {
			told = time.Now()
			g.progress(id, steps, silent)
		}
		if err := sleep(ctx, pause-pause/8+rand.N(pause/4+1)); err != nil { //nolint:gosec // jitter needs no secrecy
			return nil, fmt.Errorf("waiting for server run %s: %w", id, err)
		}
	}
}

// lastSign is when the server was last seen at work on a run: when it began or stored
// a message, by the server's clock. It is now where that is not known.
func (g *agent) lastSign(ctx context.Context, run *letta.Run) (time.Time, error) {
	now := time.Now()
	offset, ok := g.client.Clock()
	if !ok || run.CreatedAt == "" {
		return now, nil
	}
	last, err := run.CreatedAt.Time()
	if err != nil {
		return now, nil //nolint:nilerr // a form that is not known says nothing
	}
	var messages letta.Messages
	err = g.patiently(ctx, func() (err error) { messages, err = g.client.RunMessages(ctx, run.ID); return err })
	if err != nil {
		return now, err
	}
	for i := range messages {
		if at, err := messages[i].Date.Time(); err == nil && at.After(last) {
			last = at
		}
	}
	// Counted from our now, whose monotonic part makes it safe from a clock that is set
	// while the run is waited for.
	return now.Add(-max(0, now.Sub(last.Add(-offset)))), nil
}

// sleep waits, or returns the cause of the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &classed{ctx.Err(), context.Cause(ctx)}
	}
}
