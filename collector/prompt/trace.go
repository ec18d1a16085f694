package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A traced call is what a provider trace says of one call: the messages and tools,
// changed back into what the native path gave to the template, and the ids that
// the engine answered.
type traced struct {
	messages  []message
	tools     chat.Value
	outputIDs []int32
	finish    string // the engine's word for the end of the call, or empty
	matched   int32  // the id at which it says to have stopped, or -1
	version   int32  // of the policy, or -1
	shortened bool   // the text of a tool is cut
}

var errNotNative = errors.New("trace of a call that was not made on the native path")

// readTrace reads a provider trace. The OpenAI-style body in it was never sent; it
// differs from the native prompt in few, known ways, and is already scrubbed as
// the prompt was.
//
// system replaces the text of the first message where it is not empty: a request
// with override_system has its override in the trace, and the native path ignores
// it.
func readTrace(t *letta.ProviderTrace, how answers, system string) (*traced, error) {
	var response traceResponse
	if err := json.Unmarshal(t.ResponseJSON, &response); err != nil {
		return nil, fmt.Errorf("response_json: %w", err)
	}
	if len(response.OutputIDs) == 0 {
		return nil, errNotNative
	}
	var request struct {
		Messages []traceMessage  `json:"messages"`
		Tools    json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(t.RequestJSON, &request); err != nil {
		return nil, fmt.Errorf("request_json: %w", err)
	}
	out := response.traced()
	if len(request.Tools) > 0 && string(request.Tools) != "null" {
		tools, err := chat.FromJSON(request.Tools)
		if err != nil {
			return nil, fmt.Errorf("request_json.tools: %w", err)
		}
		if len(tools.Items()) > 0 {
			out.tools = tools
		}
	}
	for i := 0; i < len(request.Messages); i++ {
		m := &request.Messages[i]
		if m.Role == roleTool {
			n := 1
			for i+n < len(request.Messages) && request.Messages[i+n].Role == roleTool {
				n++
			}
			out.messages = append(out.messages, joinReturns(request.Messages[i:i+n], how))
			out.shortened = out.shortened || cutMark.MatchString(out.messages[len(out.messages)-1].content)
			i += n - 1
			continue
		}
		role := m.Role
		if role == "developer" {
			role = roleSystem
		}
		calls := m.toolCalls()
		if len(calls) > 0 && how.all(calls) {
			out.messages = append(out.messages,
				message{role: roleApproval, content: m.Content.String(), calls: calls},
				message{role: roleApproval})
			continue
		}
		out.messages = append(out.messages, message{role: role, content: m.Content.String(), calls: calls})
	}
	if system != "" && len(out.messages) > 0 {
		out.messages[0].content = system
	}
	return out, nil
}

// A traceResponse is what is read of the engine's own answer.
type traceResponse struct {
	OutputIDs []int32 `json:"output_ids"`
	MetaInfo  struct {
		FinishReason struct {
			Type    string          `json:"type"`
			Matched json.RawMessage `json:"matched"` // an id, or a text
		} `json:"finish_reason"`
		WeightVersion string `json:"weight_version"`
	} `json:"meta_info"`
}

func (r *traceResponse) traced() *traced {
	t := &traced{outputIDs: r.OutputIDs, finish: r.MetaInfo.FinishReason.Type, matched: -1, version: -1}
	if v, err := strconv.ParseInt(r.MetaInfo.WeightVersion, 10, 32); err == nil && v >= 0 {
		t.version = int32(v) // an engine that was never updated says "default"
	}
	if id, err := strconv.ParseInt(string(r.MetaInfo.FinishReason.Matched), 10, 32); err == nil && id >= 0 {
		t.matched = int32(id)
	}
	return t
}

// joinReturns makes one message of neighbouring tool messages: the server keeps
// parallel results in one.
func joinReturns(list []traceMessage, how answers) message {
	var texts []string
	for i := range list {
		if !how.hidden(list[i].ToolCallID) {
			texts = append(texts, list[i].Content.String())
		}
	}
	return message{role: roleTool, content: strings.Join(texts, "\n"), callID: list[0].ToolCallID, name: list[0].Name}
}

// proves reports whether the trace is that of the call which sampled ids.
func (t *traced) proves(ids []int32) bool { return slices.Equal(t.outputIDs, ids) }

// conversation is what the template was given for the traced call itself.
func (t *traced) conversation() conversation { return t.before(len(t.messages)) }

// before is what it was given when only the first n messages were there.
func (t *traced) before(n int) conversation {
	return conversation{history(t.messages[:n]).view(false), t.tools, nil}
}

// cut returns the number of messages before the k-th last generation, k ≥ 1, or -1
// where there are not that many. A generation of which nothing was stored is not
// there; the count of tokens then tells.
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

// A traceMessage is one message of a trace's request_json.
type traceMessage struct {
	Role       string        `json:"role"`
	Content    letta.Content `json:"content"`
	Name       string        `json:"name"`
	ToolCallID string        `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (m *traceMessage) toolCalls() []call {
	var calls []call
	for i := range m.ToolCalls {
		c := &m.ToolCalls[i]
		calls = append(calls, call{id: c.ID, name: c.Function.Name, args: arguments(c.Function.Arguments)})
	}
	return calls
}
