package agent

import (
	"context"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A rebuilt is the answer to a send, rebuilt from the server's record. It equals the lost answer,
// except that logprobs and the unused fields of usage are missing.
type rebuilt struct {
	response *letta.LettaResponse
	// turns contains only the turns of the answer, as JSON text.
	turns []byte
	// inexact is true if the timestamp in the last tool result can be a second late. This happens
	// if no later prompt contains the tool result. Nothing more can then be sent to the agent.
	inexact bool
	// system is the system text of the first call, or nil if the trace does not show it.
	system *string
}

// rebuild builds the answer to a send from the server's record of the run. Tokens and
// log-probabilities come from the trace of each step. The text of tool results comes from the trace
// of the next step. The rest comes from steps and stored messages. The parameter inputs is the
// number of messages in the request. The parameter scrubbed is true if the server deletes the text
// before tool calls from later prompts.
//
// rebuild never guesses text that a prompt can contain. If data is missing or contradicts the
// counts, the error wraps collector.ErrGone.
func (m *runRecord) rebuild(ctx context.Context, g *agent, inputs int, scrubbed bool) (*rebuilt, error) {
	stop, err := m.stopReason(g)
	if err != nil {
		return nil, err
	}
	if err := m.checkSteps(); err != nil {
		return nil, err
	}
	calls, err := m.calls(ctx, g)
	if err != nil {
		return nil, err
	}
	return m.assemble(g, stop, calls, inputs, scrubbed)
}

// assemble builds the answer. The parameter calls contains the calls with known tokens.
func (m *runRecord) assemble(g *agent, stop letta.StopReason, calls []callRecord, inputs int, scrubbed bool) (*rebuilt, error) {
	r := &rebuilt{response: &letta.LettaResponse{
		Messages:   m.answer(inputs, scrubbed),
		StopReason: stop,
		Usage:      m.usage(),
	}}
	if shown := calls[0].shown; len(shown) > 0 && (shown[0].Role == "system" || shown[0].Role == "developer") {
		r.system = &shown[0].Content
	}
	return r, r.writeTurns(m, calls, g.state)
}

func (m *runRecord) usage() letta.UsageStatistics {
	u := letta.UsageStatistics{StepCount: int32(len(m.steps))} //nolint:gosec // a run has few steps
	for i := range m.steps {
		s := &m.steps[i]
		if s.PromptTokens != nil {
			u.PromptTokens += *s.PromptTokens
		}
		if s.CompletionTokens != nil {
			u.CompletionTokens += *s.CompletionTokens
		}
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// answer returns the messages of the answer. These are the stored messages, without the inputs and
// without the text that the server deleted for the next prompt.
func (m *runRecord) answer(inputs int, scrubbed bool) letta.Messages {
	stored := m.messages
	for len(stored) > 0 {
		if stored[0].Type != letta.TypeApprovalResponse {
			if stored[0].Type != letta.TypeUser || inputs == 0 {
				break
			}
			inputs--
		}
		stored = stored[1:]
	}
	last := ""
	if n := len(m.steps); n > 0 {
		last = m.steps[n-1].ID
	}
	out := letta.Messages{}
	var dropped *letta.Message // the omitted text before the next call
	for i := range stored {
		msg := stored[i]
		if dropped != nil {
			// The call gets the otid of the omitted text, as in the server's answer.
			if changed, err := msg.JSON.With("otid", dropped.JSON.Member("otid")); err == nil {
				msg.OTID, msg.JSON = dropped.OTID, changed
			}
			dropped = nil
		}
		if msg.Type == letta.TypeAssistant && scrubbed && msg.StepID != last && i+1 < len(stored) {
			if call := &stored[i+1]; call.Type == letta.TypeToolCall && call.ID == msg.ID {
				dropped = &stored[i]
				continue
			}
		}
		out = append(out, msg)
	}
	return out
}

// decode parses the turns into the arena and compares them with the counts of the steps.
func (r *rebuilt) decode(m *runRecord, c *letta.Client, arena *tokenize.Reply) error {
	if err := c.DecodeTurns(r.turns, arena); err != nil {
		return goneErrorf("traces of server run %s: %w", m.run.ID, err)
	}
	k := 0
	for i := range arena.Turns {
		t := &arena.Turns[i]
		if t.Role != tokenize.RoleAssistant {
			continue
		}
		for m.steps[k].CompletionTokens == nil || *m.steps[k].CompletionTokens == 0 {
			k++
		}
		s := &m.steps[k]
		k++
		if int64(len(t.OutputIDs)) != *s.CompletionTokens {
			return goneErrorf("trace of step %s has %d output tokens, but the step reports %d", s.ID, len(t.OutputIDs), *s.CompletionTokens)
		}
		if t.PromptIDs != nil && (s.PromptTokens == nil || int64(len(t.PromptIDs)) != *s.PromptTokens) {
			return goneErrorf("trace of step %s has a prompt of %d tokens, but the step reports a different count", s.ID, len(t.PromptIDs))
		}
	}
	r.turns = nil
	return nil
}
