package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/spelling"
	"github.com/rollout-rl/rollout/collector/record"
)

// A Server is what a preflight learned of the server.
type Server struct {
	// Version is what the server calls itself.
	Version string
	// Model is the model of the configuration as the server lists it; nil where the
	// configuration names none.
	Model *letta.Model
}

// Preflight tries everything that a run needs of the server, in the order in which a
// person would want to hear of it: that the server answers, that it accepts our
// credentials, that it has the model, and that an agent on it will give token data. It
// makes one agent and deletes it, and deletes those that earlier preflights left behind.
func (b *Backend) Preflight(ctx context.Context) (Server, error) {
	s, err := b.preflight(ctx)
	return s, Translate(err)
}

func (b *Backend) preflight(ctx context.Context) (Server, error) {
	health, err := b.client.Health(ctx)
	if err != nil {
		return Server{}, fmt.Errorf("server %s: %w", b.client.BaseURL(), err)
	}
	found, err := b.client.FindModel(ctx, b.cfg.Model)
	if err != nil {
		return Server{}, fmt.Errorf("server %s: %w", b.client.BaseURL(), err)
	}
	if err := b.checkModel(found); err != nil {
		return Server{}, err
	}
	task := &collector.Task{ID: preflightKey, Messages: []string{""}}
	g, err := b.open(ctx, collector.Attempt{Task: task, Key: preflightKey, GroupSize: 1, N: 1, RunID: preflightKey})
	if err != nil {
		// A refusal here is a refusal for every sample.
		if errors.Is(Translate(err), collector.ErrRejected) {
			return Server{}, fmt.Errorf("%w: %w", collector.ErrUnusable, err)
		}
		return Server{}, err
	}
	if err := b.remove(ctx, g.state.ID); err != nil {
		return Server{}, err
	}
	b.clearPreflights(ctx)
	s := Server{Version: health.Version}
	if b.cfg.Model != "" {
		s.Model = found.Model
	}
	return s, nil
}

// preflightKey is the key and the run of the agents that Preflight and Try make.
const preflightKey = "preflight"

// preflightAge is the age from which such an agent was left behind: a preflight makes and
// deletes its own within seconds.
const preflightAge = 10 * time.Minute

// clearPreflights deletes the agents of preflights that were killed, or whose create lost
// its answer: no run looks for them. Where it fails, the run can begin all the same.
func (b *Backend) clearPreflights(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	ahead, _ := b.client.Clock()
	before := time.Now().Add(ahead - preflightAge)
	_, _ = Clean(ctx, b.client, preflightKey, func(a *letta.AgentState) bool {
		if a.CreatedAt == "" {
			return true
		}
		at, err := a.CreatedAt.Time()
		return err != nil || at.After(before)
	})
}

// checkModel returns an error where the server does not list the model. It names those
// that may have been meant.
func (b *Backend) checkModel(found *letta.FoundModel) error {
	handle := b.cfg.Model
	switch {
	case handle == "" || found.Model != nil:
		return nil
	}
	e := &ModelError{Handle: handle, Count: found.Count}
	for _, h := range found.Near {
		e.Near = append(e.Near, b.client.Redact(h))
	}
	return e
}

// A ModelError says that a server does not list a model. It wraps collector.ErrUnusable.
type ModelError struct {
	Handle string
	// Near are handles that the server lists, the most likely one first; Count is how many
	// it lists in all.
	Near  []string
	Count int
}

// Error returns what the server lists instead.
func (e *ModelError) Error() string {
	if e.Count == 0 {
		return fmt.Sprintf("model %q: the server lists no models; make a provider of type sglang, or refresh it", e.Handle)
	}
	var near, likely []string
	for _, h := range e.Near {
		near = append(near, strconv.Quote(h))
		if len(likely) < 2 && meant(e.Handle, h) {
			likely = append(likely, strconv.Quote(h))
		}
	}
	if likely != nil {
		return fmt.Sprintf("model %q: the server does not list it; did you mean %s?", e.Handle, strings.Join(likely, " or "))
	}
	more := ""
	if e.Count > len(near) {
		more = ", …"
	}
	return fmt.Sprintf("model %q: the server does not list it among its %d models: %s%s", e.Handle, e.Count, strings.Join(near, ", "), more)
}

// Unwrap returns collector.ErrUnusable.
func (e *ModelError) Unwrap() error { return collector.ErrUnusable }

// meant reports whether a handle was likely meant by another: it is a part of it, or a few
// letters away.
func meant(given, handle string) bool {
	return len(given) > 2 && strings.Contains(strings.ToLower(handle), strings.ToLower(given)) || spelling.Distance(given, handle) <= len(given)/3
}

// tryCloseTimeout bounds the removal of the agent of a Try: a run that is about to begin
// waits for it.
const tryCloseTimeout = 10 * time.Second

// Try makes an agent for the task as an attempt does, sends it the first message of the
// task, and lets the model answer with one call. look is given the reply and its record
// while the agent is still there; then Try removes the agent, also where ctx is done. try
// is the number of the attempt.
//
// The agent has the tags of Preflight: the next Preflight removes one that a killed process
// left. Try returns an error of the send, or of look, as it is. The reply ends with its
// first send: Try answers no question of the server, runs no client tool, and does not
// wait for the answer of a connection that was lost.
func (b *Backend) Try(ctx context.Context, task *collector.Task, try int, look func(context.Context, *collector.Reply, *record.Rollout) error) error {
	one := *task
	one.Messages = one.Messages[:min(1, len(one.Messages))]
	// The index is that of no sample.
	g, err := b.open(ctx, collector.Attempt{Task: &one, Key: preflightKey, Index: -1, GroupSize: 1, N: try, RunID: preflightKey})
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
