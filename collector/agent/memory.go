package agent

import (
	"context"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
)

// A recollection is the answer of a send as the server's memory gives it: equal to
// the one that was not read, but for its logprobs and what no one reads of its usage.
type recollection struct {
	response *letta.LettaResponse
	turns    []byte // the JSON of an answer with nothing but turns
	// guessed says that the text of the last tool has a time stamp that may be a
	// second late: no later prompt shows what the model would have been given. It is
	// in no prompt then, and nothing may come after it.
	guessed bool
	// system is the system text that the first call was given, nil where its trace
	// shows none.
	system *string
}

// A recalled call is one call of the model: its step and what the trace says of it.
type recalledCall struct {
	step    *letta.Step
	answer  *record.Answer
	request *letta.TraceRequest
	shown   []letta.TraceMessage // the messages of request
}

// rebuild makes the answer of a send from the server's memory of its run: tokens and
// log-probabilities from the trace of each step, the texts of tools from the trace of
// the step after, the rest from steps and stored messages. inputs is the number of
// messages of the request; scrubbed says that the server drops the text before a call
// once the next prompt is made.
//
// Nothing is guessed that a prompt may hold: what is missing or contradicts the
// counts makes an error that wraps collector.ErrGone.
func (m *memory) rebuild(ctx context.Context, g *agent, inputs int, scrubbed bool) (*recollection, error) {
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
	r := &recollection{response: &letta.LettaResponse{
		Messages:   m.said(inputs, scrubbed),
		StopReason: stop,
		Usage:      m.usage(),
	}}
	if shown := calls[0].shown; len(shown) > 0 && (shown[0].Role == "system" || shown[0].Role == "developer") {
		r.system = &shown[0].Content
	}
	err = r.writeTurns(m, calls, g.state)
	return r, err
}

// stopReason is why the run ended, where that is an end of the agent's own.
func (m *memory) stopReason(g *agent) (letta.StopReason, error) {
	var stop letta.StopReason
	switch {
	case m.run.StopReason != "":
		stop = m.run.StopReason
	case g.conversation != nil && len(m.steps) > 0:
		stop = m.steps[len(m.steps)-1].StopReason
	}
	switch stop {
	case letta.StopEndTurn, letta.StopToolRule, letta.StopMaxSteps, letta.StopMaxTokensExceeded, letta.StopRequiresApproval:
		return stop, nil
	case "":
		return "", gone("server run %s is %s and names no stop reason: %s", m.run.ID, g.said(m.run.Status), g.said(m.run.Failure()))
	default:
		return "", gone("server run %s is %s: %s", m.run.ID, g.said(m.run.Status), g.said(string(stop)))
	}
}

// said is a text of the server that an error may show.
func (g *agent) said(text string) theirs { return theirs(g.client.Redact(text)) }

// checkSteps says that a stored message was made by a step that is not listed.
func (m *memory) checkSteps() error {
	for i := range m.messages {
		switch m.messages[i].Type {
		case letta.TypeAssistant, letta.TypeToolCall, letta.TypeApprovalRequest:
		default:
			continue // what was sent; and a result may name a step of an earlier run
		}
		id := m.messages[i].StepID
		if !slices.ContainsFunc(m.steps, func(s letta.Step) bool { return s.ID == id }) {
			return gone("server run %s has a message of step %q, and does not list it", m.run.ID, id)
		}
	}
	return nil
}

// calls reads the trace of every step with an output.
func (m *memory) calls(ctx context.Context, g *agent) ([]recalledCall, error) {
	var calls []recalledCall
	for i := range m.steps {
		s := &m.steps[i]
		if status := s.Status; status != "success" {
			return nil, gone("step %s is %s", s.ID, g.said(status))
		}
		if s.CompletionTokens == nil {
			return nil, gone("step %s does not say how many tokens it made", s.ID)
		}
		if *s.CompletionTokens == 0 {
			if g.gaveUp(ctx, s.ID) {
				return nil, gone("the engine gave the call of step %s up", s.ID)
			}
			continue
		}
		t, err := g.lateTrace(ctx, s.ID)
		if err != nil {
			return nil, err
		}
		if t == nil {
			return nil, gone("step %s has no trace: its tokens were only in the answer", s.ID)
		}
		c := recalledCall{step: s}
		if c.answer, err = t.Answer(); err != nil {
			return nil, gone("trace of step %s: response: %w", s.ID, err)
		}
		if c.request, err = t.Request(); err == nil {
			c.shown, err = t.Messages()
		}
		if err != nil {
			return nil, gone("trace of step %s: request: %w", s.ID, err)
		}
		if c.answer.OutputIDs.IsNull() {
			return nil, gone("trace of step %s holds no tokens", s.ID)
		}
		calls = append(calls, c)
	}
	if len(calls) == 0 {
		return nil, gone("server run %s has no step with an output", m.run.ID)
	}
	return calls, nil
}

// usage sums the steps, as the answer does.
func (m *memory) usage() letta.UsageStatistics {
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

// said are the messages of the answer: what is stored without what was sent, and
// without the texts that the server dropped while it made the next prompt.
func (m *memory) said(inputs int, scrubbed bool) letta.Messages {
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

// text is what the stored messages have of the assistant's text at a step, and
// whether there is any.
func (m *memory) text(stepID string) (string, bool) {
	for i := range m.messages {
		if a := &m.messages[i]; a.Type == letta.TypeAssistant && a.StepID == stepID {
			return a.Content.String(), true
		}
	}
	return "", false
}

// returns lists the tool messages of a step; those before the first step where
// stepID is empty: they answer an earlier run, and name a step of that.
func (m *memory) returns(stepID string) []*letta.Message {
	var list []*letta.Message
	for i := range m.messages {
		r := &m.messages[i]
		if r.Type != letta.TypeToolReturn {
			continue
		}
		of := r.StepID
		own := slices.ContainsFunc(m.steps, func(s letta.Step) bool { return s.ID == of })
		if own && of == stepID || !own && stepID == "" {
			list = append(list, r)
		}
	}
	return list
}

// lateTrace is the trace of a step, which may come some time after the end of its
// run; nil where there is none for good.
func (g *agent) lateTrace(ctx context.Context, stepID string) (t *record.Trace, err error) {
	const tries, pause = 3, 400 * time.Millisecond
	for i := 1; ; i++ {
		err = g.patiently(ctx, func() error {
			t, err = g.rollout.TraceSoon(ctx, stepID)
			return err
		})
		if t != nil || err != nil || i == tries {
			return t, err
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}
