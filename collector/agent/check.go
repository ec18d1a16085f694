package agent

import (
	"context"
	"errors"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

// checkCloseTimeout bounds the removal of the agent of a check.
const checkCloseTimeout = 30 * time.Second

// Check makes an agent as every attempt does, has it answer a greeting, and removes it, also
// where agents are kept (Config.Keep): a run may check often. The agent has the tags of the
// run: what a kill leaves behind is found and removed with the run's own agents.
func (b *Backend) Check(ctx context.Context, runID string) (err error) {
	g, err := b.open(ctx, collector.Attempt{
		Task: &collector.Task{ID: "check", Messages: []string{"Hi."}}, Key: "check", GroupSize: 1, N: 1, RunID: runID,
	})
	if err != nil {
		return Translate(err)
	}
	g.cfg.Keep = false
	defer func() {
		fresh, done := context.WithTimeout(context.WithoutCancel(ctx), checkCloseTimeout)
		defer done()
		err = errors.Join(err, g.Close(fresh))
	}()
	_, err = g.Run(ctx)
	return err
}

// Ping asks the server for its health, which costs it nothing.
func (b *Backend) Ping(ctx context.Context) error {
	_, err := b.client.Health(ctx)
	return Translate(err)
}
