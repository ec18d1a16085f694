package letta

import (
	"context"
	"encoding/json"
	"time"
)

// Evidence is what a rollout's prompts can be rebuilt from. It is valid until the agent
// is closed; what it can fetch is gone after that, but for traces.
type Evidence struct {
	Client       *Client
	Agent        *AgentState
	Conversation *Conversation // nil where none was used
	// SystemText is the text of the system message right after the agent was made,
	// where AgentConfig.SystemText asked for it.
	SystemText string
	// Late says that Agent and SystemText were read after a request was sent to the
	// agent: they need not be what that request was given.
	Late bool
	// Sends has one entry per Reply.Sends, in the same order.
	Sends []SendEvidence
}

// A SendEvidence is one request and its answer, without turns.
type SendEvidence struct {
	Request  *LettaRequest
	Response *LettaResponse
	RunID    string // empty where unknown
	Duration time.Duration
}

// Steps returns the steps of send i that made tokens, oldest first: the k-th is
// that of the k-th assistant turn.
func (e *Evidence) Steps(ctx context.Context, i int) ([]Step, error) {
	all, err := e.Client.RunSteps(ctx, e.Sends[i].RunID)
	if err != nil {
		return nil, err
	}
	steps := all[:0]
	for _, s := range all {
		if s.CompletionTokens != nil && *s.CompletionTokens > 0 {
			steps = append(steps, s)
		}
	}
	return steps, nil
}

// Messages returns the stored messages of send i, oldest first.
func (e *Evidence) Messages(ctx context.Context, i int) (Messages, error) {
	return e.Client.RunMessages(ctx, e.Sends[i].RunID)
}

// Trace returns the trace of a step, waiting a little for one that is late; nil
// where there is none.
func (e *Evidence) Trace(ctx context.Context, stepID string) (*ProviderTrace, error) {
	return e.Client.PollStepTrace(ctx, stepID)
}

// AgentNow reads the agent and the text of its system message again.
func (e *Evidence) AgentNow(ctx context.Context) (*AgentState, string, error) {
	now, err := e.Client.Agent(ctx, e.Agent.ID)
	if err != nil || len(now.MessageIDs) == 0 {
		return now, "", err
	}
	system, err := e.Client.SystemText(ctx, now.MessageIDs[0])
	return now, system, err
}

// Conversed is the conversation as a JSON array: what was sent, as the request had
// it, and the messages of the answers, in order.
func (e *Evidence) Conversed() (json.RawMessage, error) {
	all := []any{}
	for _, s := range e.Sends {
		for _, m := range s.Request.Messages {
			all = append(all, m)
		}
		for _, m := range s.Response.Messages {
			all = append(all, m)
		}
	}
	return marshalText(all)
}
