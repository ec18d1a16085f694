package record

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta"
)

// A Run is the record of one server run.
type Run struct {
	ID string

	of       *Rollout
	steps    once[[]letta.Step]
	messages once[letta.Messages]
}

// Steps returns the steps, oldest first.
func (r *Run) Steps(ctx context.Context) ([]letta.Step, error) {
	return r.steps.get(ctx, func(ctx context.Context) ([]letta.Step, error) {
		return fetch(ctx, r.of, &r.of.requests.Steps, Source.RunSteps, r.ID)
	})
}

// SetSteps stores steps that the caller has already fetched.
func (r *Run) SetSteps(steps []letta.Step) { r.steps.set(steps) }

// Forget drops the steps and the messages. The next caller refetches them.
func (r *Run) Forget() {
	r.steps.drop(func([]letta.Step) bool { return true })
	r.messages.drop(func(letta.Messages) bool { return true })
}

// Calls returns the steps with completion tokens, oldest first. Step k belongs to assistant turn k.
func (r *Run) Calls(ctx context.Context) ([]letta.Step, error) {
	all, err := r.Steps(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(s letta.Step) bool {
		return s.CompletionTokens == nil || *s.CompletionTokens <= 0
	}), nil
}

// IsAlert reports whether the text of a user message is the server's note about a compaction.
func IsAlert(text string) bool {
	var note struct {
		Type string `json:"type"`
	}
	return strings.HasPrefix(strings.TrimSpace(text), "{") &&
		json.Unmarshal([]byte(text), &note) == nil && note.Type == "system_alert"
}

// Messages returns the stored messages, oldest first, including the messages of the request.
func (r *Run) Messages(ctx context.Context) (letta.Messages, error) {
	return r.messages.get(ctx, func(ctx context.Context) (letta.Messages, error) {
		return fetch(ctx, r.of, &r.of.requests.Messages, Source.RunMessages, r.ID)
	})
}
