package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
)

// Preflight tries everything that a run needs of the server, in the order in which
// a person would want to hear of it: that the server answers, that it lets us in,
// that it has the model, and that an agent on it will give token data. One agent
// is made and deleted, and so are those that earlier preflights left behind.
func (b *Backend) Preflight(ctx context.Context) error { return Translate(b.preflight(ctx)) }

func (b *Backend) preflight(ctx context.Context) error {
	if _, err := b.client.Health(ctx); err != nil {
		return fmt.Errorf("server %s: %w", b.client.BaseURL(), err)
	}
	found, err := b.client.FindModel(ctx, b.cfg.Model)
	if err != nil {
		return fmt.Errorf("server %s: %w", b.client.BaseURL(), err)
	}
	if err := b.checkModel(found); err != nil {
		return err
	}
	task := &collector.Task{ID: preflight, Messages: []string{""}}
	g, err := b.open(ctx, collector.Attempt{Task: task, Key: preflight, GroupSize: 1, N: 1, RunID: preflight})
	if err != nil {
		// A refusal here is a refusal for every sample.
		if errors.Is(Translate(err), collector.ErrRejected) {
			return fmt.Errorf("%w: %w", collector.ErrUnusable, err)
		}
		return err
	}
	if err := b.remove(ctx, g.state.ID); err != nil {
		return err
	}
	b.clearPreflights(ctx)
	return nil
}

// preflight is the key and the run of the agents that Preflight makes.
const preflight = "preflight"

// preflightAge is the age at which such an agent belongs to nobody: it is made and
// deleted within seconds.
const preflightAge = 10 * time.Minute

// clearPreflights deletes the agents of preflights that were killed in the middle, or
// whose create lost its answer: no run looks for them. That it fails says nothing about
// the run that is to begin.
func (b *Backend) clearPreflights(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	ahead, _ := b.client.Clock()
	before := time.Now().Add(ahead - preflightAge)
	_, _ = CleanRun(ctx, b.client, preflight, func(a *letta.AgentState) bool {
		if a.CreatedAt == "" {
			return true
		}
		at, err := a.CreatedAt.Time()
		return err != nil || at.After(before)
	})
}

// checkModel says that the server does not list the model, and which it may have
// been.
func (b *Backend) checkModel(found *letta.FoundModel) error {
	handle := b.cfg.Model
	switch {
	case handle == "" || found.Model != nil:
		return nil
	case found.Count == 0:
		return fmt.Errorf("%w: model %q: the server lists no models; make a provider of type sglang, or refresh it", collector.ErrUnusable, handle)
	case found.Nearest != "":
		return fmt.Errorf("%w: model %q: the server does not list it; did you mean %q", collector.ErrUnusable, handle, b.client.Redact(found.Nearest))
	}
	return fmt.Errorf("%w: model %q: the server does not list it among its %d models", collector.ErrUnusable, handle, found.Count)
}

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
