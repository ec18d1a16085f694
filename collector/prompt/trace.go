package prompt

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A traced is the provider trace of one call: the engine's answer, and the messages and tools in
// the form in which the native path passes them to the template.
type traced struct {
	messages  history
	tools     chat.Value
	answer    *record.Answer
	shortened bool // the text of a tool result is truncated
}

var errNotNative = errors.New("the call did not use the native path")

// readTrace parses a provider trace. The OpenAI-style request body in the trace was never sent. It
// differs from the native prompt in a few known ways. As in the native prompt, the text before tool
// calls has already been removed.
//
// If system is not empty, it replaces the text of the first message. This is necessary if the
// request sets override_system, which the trace shows but the native path ignores.
func readTrace(t *record.Trace, of decisions, system string) (*traced, error) {
	answer, err := t.Answer()
	if err != nil {
		return nil, fmt.Errorf("response_json: %w", err)
	}
	switch ids, err := answer.IDs(); {
	case err != nil:
		return nil, fmt.Errorf("response_json: %w", err)
	case len(ids) == 0:
		return nil, errNotNative
	}
	request, err := t.Request()
	if err != nil {
		return nil, fmt.Errorf("request_json: %w", err)
	}
	messages, err := t.Messages()
	if err != nil {
		return nil, fmt.Errorf("request_json: %w", err)
	}
	out := &traced{answer: answer}
	if !request.Tools.IsNull() {
		tools, err := chat.FromJSONText(string(request.Tools))
		if err != nil {
			return nil, fmt.Errorf("request_json.tools: %w", err)
		}
		if len(tools.Items()) > 0 {
			out.tools = tools
		}
	}
	for i := 0; i < len(messages); i++ {
		m := &messages[i]
		if m.Role == roleTool {
			n := 1
			for i+n < len(messages) && messages[i+n].Role == roleTool {
				n++
			}
			out.messages = append(out.messages, joinReturns(messages[i:i+n], of))
			out.shortened = out.shortened || cutMark.MatchString(out.messages[len(out.messages)-1].content)
			i += n - 1
			continue
		}
		role := m.Role
		if role == "developer" {
			role = roleSystem
		}
		calls := tracedCalls(m)
		if len(calls) > 0 && of.all(calls) {
			out.messages = append(out.messages,
				message{role: roleApproval, content: m.Content, calls: calls},
				message{role: roleApproval})
			continue
		}
		out.messages = append(out.messages, message{role: role, content: m.Content, calls: calls})
	}
	if system != "" && len(out.messages) > 0 {
		out.messages[0].content = system
	}
	return out, nil
}

// joinReturns joins adjacent tool messages into one, because the server keeps parallel results in
// one message.
func joinReturns(list []letta.TraceMessage, of decisions) message {
	var texts []string
	for i := range list {
		if !of.hidden(list[i].ToolCallID) {
			texts = append(texts, list[i].Content)
		}
	}
	return message{role: roleTool, content: strings.Join(texts, "\n"), callID: list[0].ToolCallID, name: list[0].Name}
}

func (t *traced) input() input { return t.before(len(t.messages)) }

// before returns the template's input with only the first n messages.
func (t *traced) before(n int) input {
	return input{messages: t.messages[:n], tools: t.tools}
}

// cut returns the number of messages before the k-th generation from the end (k ≥ 1), or -1 if
// there are fewer than k generations. If a generation was not stored, the result is wrong. In that
// case, the prompt is rejected because its token count does not match.
func (t *traced) cut(k int) int {
	for i := len(t.messages) - 1; i >= 0; i-- {
		m := &t.messages[i]
		if m.role == roleAssistant || m.role == roleApproval && len(m.calls) > 0 {
			if k--; k == 0 {
				return i
			}
		}
	}
	return -1
}

func tracedCalls(m *letta.TraceMessage) []call {
	var calls []call
	for i := range m.ToolCalls {
		c := &m.ToolCalls[i]
		calls = append(calls, call{id: c.ID, name: c.Name, arguments: c.Arguments})
	}
	return calls
}
