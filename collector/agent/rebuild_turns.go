package agent

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
)

// A writtenTurn is a turn in the JSON form that tokenize.Decoder parses.
type writtenTurn struct {
	Role      string          `json:"role"`
	OutputIDs json.RawMessage `json:"output_ids"`
	Logprobs  json.RawMessage `json:"output_token_logprobs"`
	Content   *string         `json:"content"`
	ToolName  *string         `json:"tool_name"`
	InputIDs  json.RawMessage `json:"input_ids,omitempty"`
}

// writeTurns encodes the turns in the server's order. Results for the calls of an earlier run come
// first. After them, each call is followed by the results of its tool calls.
func (r *rebuilt) writeTurns(m *runRecord, calls []callRecord, state *letta.AgentState) error {
	var turns []writtenTurn
	tools := func(stepID string, next []callRecord) error {
		for _, message := range m.returns(stepID) {
			text, err := toolText(message, next, state)
			switch {
			case err != nil && m.recorded:
				text = packaged(message, message.ToolReturns, state)
			case err != nil:
				return err
			}
			r.inexact = r.inexact || len(next) == 0
			if text != "" {
				turns = append(turns, writtenTurn{Role: "tool", Content: &text, ToolName: &message.Name})
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
	r.turns, err = letta.Marshal(map[string]any{"turns": turns})
	return err
}

// turn returns the assistant turn of a call, with the text that the server stored. If the model
// wrote NUL characters, which the server does not store, turn applies the server's rule to the text
// in the trace instead.
func (m *runRecord) turn(c *callRecord) (writtenTurn, error) {
	t := writtenTurn{Role: "assistant", OutputIDs: json.RawMessage(c.answer.OutputIDs), Logprobs: json.RawMessage(c.answer.Logprobs)}
	if len(t.Logprobs) == 0 {
		t.Logprobs = json.RawMessage("null")
	}
	if !c.request.InputIDs.IsNull() {
		t.InputIDs = json.RawMessage(c.request.InputIDs)
	}
	written := strings.Trim(toolCallText.ReplaceAllString(c.answer.Text, ""), pythonSpace)
	stored, is := m.text(c.step.ID)
	switch {
	case strings.Contains(written, "\x00"):
		t.Content = &written
	case is:
		t.Content = &stored
	case written != "" && m.recorded: // the request of the run can exclude assistant messages (include_return_message_types)
		t.Content = &written
	case written != "":
		return t, goneErrorf("step %s: the trace has text, but the stored messages have none", c.step.ID)
	}
	return t, nil
}

// toolCallText matches the tool calls that the native adapter removes from the output text.
// pythonSpace contains the characters that the adapter strips from both ends
// (sglang_native_adapter.py:262, str.strip).
var toolCallText = regexp.MustCompile(`(?s)<tool_call>.*?</tool_call>`)

const pythonSpace = "\t\n\v\f\r\x1c\x1d\x1e\x1f \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

// toolText returns the text of a tool message as the model saw it, packaged with the server's time.
// Stored messages have only the bare result, so the text comes from the trace of the next call. If
// there is no next call, toolText packages the result itself.
func toolText(message *letta.Message, next []callRecord, state *letta.AgentState) (string, error) {
	returns := message.ToolReturns
	if len(next) == 0 {
		return packaged(message, returns, state), nil
	}
	all := next[0].shown
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
			if !slices.ContainsFunc(returns, func(r letta.ToolReturn) bool { return r.ToolCallID == shown.ToolCallID }) {
				texts = nil
				break
			}
			texts = append(texts, shown.Content)
		}
		if len(texts) == len(returns) && len(texts) > 0 {
			return strings.Join(texts, "\n"), nil
		}
		end = begin
	}
	call := ""
	if len(returns) > 0 {
		call = returns[0].ToolCallID
	}
	return "", goneErrorf("the trace of step %s lacks the result of call %s", next[0].step.ID, call)
}

// packaged formats the results in the same way as the server's package_function_response
// (system.py:150-168).
func packaged(message *letta.Message, returns []letta.ToolReturn, state *letta.AgentState) string {
	zone := time.UTC
	if l, err := time.LoadLocation(state.Timezone); err == nil {
		zone = l
	}
	at, _ := message.Date.Time()
	var texts []string
	for i := range returns {
		status := "OK"
		if returns[i].Status != "success" {
			status = "Failed"
		}
		result, err := letta.Marshal(returns[i].Content.String())
		if err != nil {
			continue // unreachable, because every string can be encoded
		}
		texts = append(texts, fmt.Sprintf("{\n  \"status\": %q,\n  \"message\": %s,\n  \"time\": %q\n}",
			status, result, at.In(zone).Format("2006-01-02 03:04:05 PM MST-0700")))
	}
	return strings.Join(texts, "\n")
}
