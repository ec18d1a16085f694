package agent

import (
	"context"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A rebuilt is the answer of a send as the record gives it. It equals the answer that was
// not read, but for its logprobs and for what nobody reads of its usage.
type rebuilt struct {
	response *letta.LettaResponse
	// turns is the JSON of an answer with nothing but turns.
	turns []byte
	// inexact reports whether the text of the last tool has a time stamp that may be a
	// second late: no later prompt shows what the model would have been given. It is in no
	// prompt then, and nothing may come after it.
	inexact bool
	// system is the system text that the first call was given; nil: its trace shows none.
	system *string
}

// rebuild makes the answer of a send from what the server keeps of its run: tokens and
// log-probabilities from the trace of each step, the texts of tools from the trace of the
// step after, the rest from steps and stored messages. inputs is the number of messages of
// the request. scrubbed says that the server deletes the text before a call when it makes
// the next prompt.
//
// rebuild guesses nothing that a prompt may hold: where something is missing, or
// contradicts the counts, the error wraps collector.ErrGone.
func (m *keptRun) rebuild(ctx context.Context, g *agent, inputs int, scrubbed bool) (*rebuilt, error) {
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

// assemble makes the answer of what was read. calls are those whose tokens are known.
func (m *keptRun) assemble(g *agent, stop letta.StopReason, calls []keptCall, inputs int, scrubbed bool) (*rebuilt, error) {
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

// usage returns the sums over the steps, as the answer has them.
func (m *keptRun) usage() letta.UsageStatistics {
	u := letta.UsageStatistics{StepCount: int32(len(m.steps))} //nolint:gosec // a run has few
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

// answer returns the messages of the answer: what is stored, without what was sent and
// without the texts that the server deleted when it made the next prompt.
func (m *keptRun) answer(inputs int, scrubbed bool) letta.Messages {
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
	var dropped *letta.Message // the text that is left out before the call that follows
	for i := range stored {
		msg := stored[i]
		if dropped != nil {
			// Numbered anew within the stored message.
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

// decode reads the turns into the arena and compares them with the counts of the steps.
func (r *rebuilt) decode(m *keptRun, c *letta.Client, arena *tokenize.Reply) error {
	if err := c.DecodeTurns(r.turns, arena); err != nil {
		return gone("traces of server run %s: %w", m.run.ID, err)
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
			return gone("trace of step %s has %d tokens, the step counted %d", s.ID, len(t.OutputIDs), *s.CompletionTokens)
		}
		if t.PromptIDs != nil && (s.PromptTokens == nil || int64(len(t.PromptIDs)) != *s.PromptTokens) {
			return gone("trace of step %s has a prompt of %d tokens, which the step did not count", s.ID, len(t.PromptIDs))
		}
	}
	r.turns = nil
	return nil
}
