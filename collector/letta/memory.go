package letta

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A recollection is the answer of a send as the server's memory gives it: equal to
// the one that was not read, but for its logprobs and what no one reads of its usage.
type recollection struct {
	response *LettaResponse
	turns    []byte // the JSON of an answer with nothing but turns
	// guessed says that the text of the last tool has a time stamp that may be a
	// second late: no later prompt shows what the model would have been given. It is
	// in no prompt then, and nothing may be sent after it.
	guessed bool
}

// A recalled call is one call of the model: its step and what the trace says of it.
type recalledCall struct {
	step     *Step
	response traceResponse
	request  traceRequest
}

type traceResponse struct {
	Text      string          `json:"text"`
	OutputIDs json.RawMessage `json:"output_ids"`
	MetaInfo  struct {
		Logprobs json.RawMessage `json:"output_token_logprobs"`
	} `json:"meta_info"`
}

type traceRequest struct {
	Messages []struct {
		Role       string  `json:"role"`
		Content    Content `json:"content"`
		ToolCallID string  `json:"tool_call_id"`
	} `json:"messages"`
	// InputIDs is the prompt itself. Server 0.16.7 does not keep it.
	InputIDs json.RawMessage `json:"input_ids"`
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
	calls, err := m.calls(ctx, g)
	if err != nil {
		return nil, err
	}
	r := &recollection{response: &LettaResponse{
		Messages:   m.said(inputs, scrubbed),
		StopReason: StopReasonMessage{MessageType: "stop_reason", StopReason: stop},
		Usage:      m.usage(),
	}}
	err = r.writeTurns(m, calls, g.state)
	return r, err
}

// stopReason is why the run ended, where that is an end of the agent's own.
func (m *memory) stopReason(g *agent) (StopReason, error) {
	var stop StopReason
	switch {
	case m.run.StopReason != nil:
		stop = *m.run.StopReason
	case g.conversation != nil && len(m.steps) > 0 && m.steps[len(m.steps)-1].StopReason != nil:
		stop = *m.steps[len(m.steps)-1].StopReason
	}
	switch stop {
	case StopEndTurn, StopToolRule, StopMaxSteps, StopMaxTokensExceeded, StopRequiresApproval:
		return stop, nil
	case "":
		why := oneLine(g.client.secrets.scrub(m.run.Failure()))
		return "", gone("server run %s is %s and names no stop reason: %s", m.run.ID, m.run.Status, why)
	}
	return "", gone("server run %s is %s: %s", m.run.ID, m.run.Status, stop)
}

// calls reads the trace of every step with an output.
func (m *memory) calls(ctx context.Context, g *agent) ([]recalledCall, error) {
	var calls []recalledCall
	for i := range m.steps {
		s := &m.steps[i]
		if status := deref(s.Status); status != "success" {
			return nil, gone("step %s is %s", s.ID, status)
		}
		if s.CompletionTokens == nil || *s.CompletionTokens == 0 {
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
		if err := json.Unmarshal(t.ResponseJSON, &c.response); err != nil {
			return nil, gone("trace of step %s: response: %w", s.ID, err)
		}
		if err := json.Unmarshal(t.RequestJSON, &c.request); err != nil {
			return nil, gone("trace of step %s: request: %w", s.ID, err)
		}
		if isNull(c.response.OutputIDs) {
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
func (m *memory) usage() UsageStatistics {
	u := UsageStatistics{MessageType: "usage_statistics", StepCount: int32(len(m.steps))} //nolint:gosec // a run has few
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
func (m *memory) said(inputs int, scrubbed bool) Messages {
	stored := m.messages
	for len(stored) > 0 {
		if _, is := stored[0].(*ApprovalResponseMessage); !is {
			if _, is = stored[0].(*UserMessage); !is || inputs == 0 {
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
	out := Messages{}
	for i, msg := range stored {
		text, is := msg.(*AssistantMessage)
		if is && scrubbed && deref(text.StepID) != last && i+1 < len(stored) {
			if call, is := stored[i+1].(*ToolCallMessage); is && call.ID == text.ID {
				call.OTID = text.OTID // numbered anew within the stored message
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
	for _, msg := range m.messages {
		if a, is := msg.(*AssistantMessage); is && deref(a.StepID) == stepID {
			return a.Content.String(), true
		}
	}
	return "", false
}

// returns lists the tool messages of a step; those before the first step where
// stepID is empty: they answer an earlier run, and name a step of that.
func (m *memory) returns(stepID string) []*ToolReturnMessage {
	var list []*ToolReturnMessage
	for _, msg := range m.messages {
		r, is := msg.(*ToolReturnMessage)
		if !is {
			continue
		}
		of := deref(r.StepID)
		own := slices.ContainsFunc(m.steps, func(s Step) bool { return s.ID == of })
		if own && of == stepID || !own && stepID == "" {
			list = append(list, r)
		}
	}
	return list
}

// A turn as it is written for tokenize.Decoder, which alone knows how to read one.
type writtenTurn struct {
	Role      string          `json:"role"`
	OutputIDs json.RawMessage `json:"output_ids"`
	Logprobs  json.RawMessage `json:"output_token_logprobs"`
	Content   *string         `json:"content"`
	ToolName  *string         `json:"tool_name"`
	InputIDs  json.RawMessage `json:"input_ids,omitempty"`
}

// writeTurns writes the turns in the order of the server: after each call the results
// of its tools, and before the first call those that answer an earlier run.
func (r *recollection) writeTurns(m *memory, calls []recalledCall, state *AgentState) error {
	var turns []writtenTurn
	tools := func(stepID string, next []recalledCall) error {
		for _, message := range m.returns(stepID) {
			text, err := toolText(message, next, state)
			if err != nil {
				return err
			}
			r.guessed = r.guessed || len(next) == 0
			if text != "" {
				turns = append(turns, writtenTurn{Role: "tool", Content: &text, ToolName: message.Name})
			}
		}
		return nil
	}
	if err := tools("", calls); err != nil {
		return err
	}
	next := calls
	for i := range m.steps {
		if len(next) > 0 && next[0].step == &m.steps[i] {
			turn, err := m.turn(&next[0])
			if err != nil {
				return err
			}
			turns, next = append(turns, turn), next[1:]
		}
		if err := tools(m.steps[i].ID, next); err != nil {
			return err
		}
	}
	var err error
	r.turns, err = marshalText(map[string]any{"turns": turns})
	return err
}

// turn is the assistant turn of a call. Its text is what the server stored: where it
// stores less than the model wrote (NUL characters), the server's rule is applied to
// the trace.
func (m *memory) turn(c *recalledCall) (writtenTurn, error) {
	t := writtenTurn{Role: "assistant", OutputIDs: c.response.OutputIDs, Logprobs: c.response.MetaInfo.Logprobs}
	if len(t.Logprobs) == 0 {
		t.Logprobs = json.RawMessage("null")
	}
	if !isNull(c.request.InputIDs) {
		t.InputIDs = c.request.InputIDs
	}
	written := strings.Trim(toolCallText.ReplaceAllString(c.response.Text, ""), pythonSpace)
	stored, is := m.text(c.step.ID)
	switch {
	case strings.Contains(written, "\x00"):
		t.Content = &written
	case is:
		t.Content = &stored
	case written != "":
		return t, gone("step %s: the trace has a text, the stored messages have none", c.step.ID)
	}
	return t, nil
}

// toolCallText and pythonSpace are what the native adapter cuts out of a text, and
// what it strips (sglang_native_adapter.py:262, str.strip).
var toolCallText = regexp.MustCompile(`(?s)<tool_call>.*?</tool_call>`)

const pythonSpace = "\t\n\v\f\r\x1c\x1d\x1e\x1f \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

// toolText is the text of a tool message as the model was given it: packaged, with
// the time of the server. Stored messages have the bare result, so it is taken from
// the trace of the call after. Where no call came after, it is packaged here.
func toolText(message *ToolReturnMessage, next []recalledCall, state *AgentState) (string, error) {
	returns := message.Returns()
	if len(next) == 0 {
		return packaged(message, returns, state), nil
	}
	all := next[0].request.Messages
	for end := len(all); end > 0; {
		if all[end-1].Role != "tool" {
			end--
			continue
		}
		begin := end - 1
		for begin > 0 && all[begin-1].Role == "tool" {
			begin--
		}
		var texts []string
		for _, shown := range all[begin:end] {
			if !slices.ContainsFunc(returns, func(r ToolReturn) bool { return r.ToolCallID == shown.ToolCallID }) {
				texts = nil
				break
			}
			texts = append(texts, shown.Content.String())
		}
		if len(texts) == len(returns) && len(texts) > 0 {
			return strings.Join(texts, "\n"), nil
		}
		end = begin
	}
	return "", gone("the trace of step %s does not show the result of call %s", next[0].step.ID, message.ToolCallID)
}

// packaged is package_function_response of the server (system.py:150-168).
func packaged(message *ToolReturnMessage, returns []ToolReturn, state *AgentState) string {
	zone := time.UTC
	if l, err := time.LoadLocation(deref(state.Timezone)); err == nil {
		zone = l
	}
	at, _ := message.Date.Time()
	var texts []string
	for i := range returns {
		status := "OK"
		if returns[i].Status != "success" {
			status = "Failed"
		}
		said, err := marshalText(returns[i].ToolReturn.String())
		if err != nil {
			continue // a string can be encoded
		}
		texts = append(texts, fmt.Sprintf("{\n  \"status\": %q,\n  \"message\": %s,\n  \"time\": %q\n}",
			status, said, at.In(zone).Format("2006-01-02 03:04:05 PM MST-0700")))
	}
	return strings.Join(texts, "\n")
}

// decode reads the turns into the arena and compares them with the counts of the
// steps.
func (r *recollection) decode(ctx context.Context, m *memory, c *Client, arena *tokenize.Reply) error {
	if err := c.decodeTurns(ctx, r.turns, arena); err != nil {
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

// decodeTurns decodes an answer that is in memory, when a read slot is free.
func (c *Client) decodeTurns(ctx context.Context, body []byte, arena *tokenize.Reply) error {
	select {
	case d := <-c.slots:
		defer func() { c.slots <- d }()
		return d.DecodeBytes(body, arena)
	case <-ctx.Done():
		return &classed{ctx.Err(), context.Cause(ctx)}
	}
}

// asked are the messages of the request that made the run, as this package would
// send them, and whether one holds a result or a refusal of this side.
func (m *memory) asked() (messages InputMessages, client bool) {
	for _, msg := range m.messages {
		switch msg := msg.(type) {
		case *UserMessage:
			return InputMessages{UserText(msg.Content.String())}, false
		case *ApprovalResponseMessage:
			answer, client := msg.asInput()
			return InputMessages{answer}, client
		default:
			return nil, false
		}
	}
	return nil, false
}

// asInput is the message that the server stored as an answer to pending calls.
func (m *ApprovalResponseMessage) asInput() (message InputMessage, client bool) {
	var returns []ToolReturn
	for _, a := range m.Approvals {
		switch a := a.(type) {
		case *ToolReturn:
			returns, client = append(returns, *a), true
		case *ApprovalReturn:
			client = client || !a.Approve
		}
	}
	if len(returns) == len(m.Approvals) {
		return &ToolReturnCreate{Type: "tool_return", ToolReturns: returns}, client
	}
	return &ApprovalCreate{Type: "approval", Approvals: m.Approvals}, client
}

// sameInput says that what was sent is what would be sent now.
func sameInput(a, b InputMessages) bool {
	x, errX := marshalText(a)
	y, errY := marshalText(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// lateTrace is the trace of a step, which may come some time after the end of its
// run; nil where there is none for good.
func (g *agent) lateTrace(ctx context.Context, stepID string) (t *ProviderTrace, err error) {
	const tries, pause = 3, 400 * time.Millisecond
	for i := 1; ; i++ {
		err = g.patiently(ctx, func() error {
			t, err = g.client.PollStepTrace(ctx, stepID)
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
