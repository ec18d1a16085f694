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

// A Server describes the server that a preflight checked.
type Server struct {
	// Version is the version that the server reports.
	Version string
	// Model is the server's entry for the configured model. It is nil if no model is configured.
	Model *letta.Model
}

// Preflight checks that the server answers, accepts the credentials, lists the model, and creates
// an agent that returns token data. It makes the checks in this order. It deletes this agent and
// the leftover agents of killed preflights.
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
		// If the server rejects this request, it would reject every sample.
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

// preflightKey is both the sample key and the run id of the agents that Preflight and Try create.
const preflightKey = "preflight"

// preflightAge is the age at which an agent counts as a leftover. A preflight deletes its agent
// within seconds.
const preflightAge = 10 * time.Minute

// clearPreflights deletes the agents of preflights that were killed or that lost the answer to
// their create request. No run looks for such agents. If clearPreflights fails, the run can still
// start.
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

// checkModel returns an error if the server does not list the model. The error names similar
// models.
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

// A ModelError reports that a server does not list a model. It wraps collector.ErrUnusable.
type ModelError struct {
	Handle string
	// Near contains similar handles, the most likely first. Count is the number of models that the
	// server lists.
	Near  []string
	Count int
}

// Error suggests handles that the server lists.
func (e *ModelError) Error() string {
	if e.Count == 0 {
		return fmt.Sprintf("model %q: the server lists no models; create a provider of type sglang, or refresh the existing one", e.Handle)
	}
	var near, likely []string
	for _, h := range e.Near {
		near = append(near, strconv.Quote(h))
		if len(likely) < 2 && meant(e.Handle, h) {
			likely = append(likely, strconv.Quote(h))
		}
	}
	if likely != nil {
		return fmt.Sprintf("the server does not list model %q; did you mean %s?", e.Handle, strings.Join(likely, " or "))
	}
	more := ""
	if e.Count > len(near) {
		more = ", …"
	}
	return fmt.Sprintf("the server does not list model %q; it lists %s%s (%d in total)", e.Handle, strings.Join(near, ", "), more, e.Count)
}

// Unwrap returns collector.ErrUnusable.
func (e *ModelError) Unwrap() error { return collector.ErrUnusable }

// meant reports whether the user probably meant this handle: it contains the given text, or differs
// from the given text in a few letters.
func meant(given, handle string) bool {
	return len(given) > 2 && strings.Contains(strings.ToLower(handle), strings.ToLower(given)) || spelling.Distance(given, handle) <= len(given)/3
}

// tryCloseTimeout limits the time that Try spends on deleting its agent, because the start of a run
// waits for Try.
const tryCloseTimeout = 10 * time.Second

// Try creates an agent for the task in the same way as an attempt. It sends the task's first
// message and allows the model one call. Then it calls look with the reply and the records. In any
// case, it deletes the agent, even if ctx is done. The parameter try is the number of the attempt.
//
// The agent has the same tags as an agent of Preflight, so a later Preflight deletes the agent if
// the process is killed. Try returns the error of the failed step, including an error from look.
// The reply has only one send, because Try does not answer approval requests, run client tools, or
// recover a lost answer.
func (b *Backend) Try(ctx context.Context, task *collector.Task, try int, look func(context.Context, *collector.Reply, *record.Rollout) error) error {
	one := *task
	one.Messages = one.Messages[:min(1, len(one.Messages))]
	// Index -1 belongs to no sample.
	g, err := b.open(ctx, collector.Attempt{Task: &one, Key: preflightKey, Index: -1, GroupSize: 1, N: try, RunID: preflightKey})
	if err != nil {
		return Translate(err)
	}
	g.cfg.MaxSteps, g.cfg.MaxRounds, g.cfg.Keep, g.cfg.NoRecover = 1, 0, false, true
	defer func() {
		fresh, done := context.WithTimeout(context.WithoutCancel(ctx), tryCloseTimeout)
		defer done()
		_ = g.Close(fresh) // if Close fails, a later preflight deletes the agent
	}()
	reply, err := g.Run(ctx)
	if err != nil {
		return err
	}
	return look(ctx, reply, g.rollout)
}
