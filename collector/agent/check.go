package agent

import (
	"context"
	"errors"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

const checkCloseTimeout = 30 * time.Second

// Check creates an agent with the tags of the run, sends it a greeting, and deletes it even if
// Config.Keep is set. If the process is killed, the agent is deleted later with the run's other
// agents.
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

// Ping sends a cheap request, the server's health check.
func (b *Backend) Ping(ctx context.Context) error {
	_, err := b.client.Health(ctx)
	return Translate(err)
}
