package agent

import (
	"context"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
)

// tryCloseTimeout bounds the removal of the agent of a Try: a run waits for it before it
// begins.
const tryCloseTimeout = 10 * time.Second

// Try makes an agent for the task as an attempt does, sends it the first message of the
// task, and lets the model answer with one call. look sees the reply while the agent is
// there, as evidence needs it; then the agent is removed, also where ctx is done. try is
// the number of the attempt.
//
// Its agents are tagged like those of Preflight: the next Preflight removes one that a
// killed process left. What ends the call is returned as it is, and so is what look
// returns. The reply ends with its first send: a question of the server is not answered,
// a client tool is not run, and a connection that is lost is not waited for.
func (b *Backend) Try(ctx context.Context, task *collector.Task, try int, look func(context.Context, *collector.Reply, *record.Rollout) error) error {
	one := *task
	one.Messages = one.Messages[:min(1, len(one.Messages))]
	// The index is that of no sample.
	g, err := b.open(ctx, collector.Attempt{Task: &one, Key: preflight, Index: -1, GroupSize: 1, N: try, RunID: preflight})
	if err != nil {
		return Translate(err)
	}
	g.cfg.MaxSteps, g.cfg.MaxRounds, g.cfg.Keep, g.cfg.NoRecover = 1, 0, false, true
	defer func() {
		fresh, done := context.WithTimeout(context.WithoutCancel(ctx), tryCloseTimeout)
		defer done()
		_ = g.Close(fresh) // what stays is removed by a later preflight
	}()
	reply, err := g.Run(ctx)
	if err != nil {
		return err
	}
	return look(ctx, reply, g.rollout)
}
