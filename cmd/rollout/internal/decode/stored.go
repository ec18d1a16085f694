package decode

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"
)

// errForm means that stored messages have a form that Stored does not know.
var errForm = errors.New("the stored messages have an unknown form")

// A storedMessage is a message of OpenAI's Chat Completions API, of Anthropic's Messages API or of Letta's API.
type storedMessage struct {
	Role             string       `json:"role"`
	Content          content      `json:"content"` // the calls and results in it are Anthropic's
	ReasoningContent string       `json:"reasoning_content"`
	ToolCalls        list[call]   `json:"tool_calls"`
	ToolCallID       string       `json:"tool_call_id"`
	Type             string       `json:"message_type"` // the rest is Letta's
	Reasoning        string       `json:"reasoning"`
	ToolCall         *call        `json:"tool_call"`
	ToolReturn       content      `json:"tool_return"`
	ToolReturns      list[result] `json:"tool_returns"`
	Kind             string       `json:"type"` // of a request's message without a role
	Approvals        list[result] `json:"approvals"`
}

type call struct {
	ID       string `json:"id"`
	CallID   string `json:"tool_call_id"`
	Function *call  `json:"function"`

	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type result struct {
	CallID string  `json:"tool_call_id"`
	Return content `json:"tool_return"`
}

// A content is a text, or a list of parts. Null is empty.
type content struct {
	text, reasoning string
	calls           []call
	results         []Message
}

// A part is a part of a content: a text, or a block of Anthropic's API.
type part struct {
	Type     string          `json:"type"`
	Text     *string         `json:"text"`
	Thinking string          `json:"thinking"`
	ID       string          `json:"id"` // of a tool_use
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	CallID   string          `json:"tool_use_id"` // of a tool_result
	Content  content         `json:"content"`
}

// A list is an array, or a single object for an array with one element.
type list[T any] []T

func (l *list[T]) UnmarshalJSON(raw []byte) error {
	if raw[0] == '{' {
		*l = make(list[T], 1)
		return json.Unmarshal(raw, &(*l)[0])
	}
	return json.Unmarshal(raw, (*[]T)(l))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *content) UnmarshalJSON(raw []byte) error {
	if raw[0] != '[' {
		return json.Unmarshal(raw, &c.text)
	}
	var parts []part
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	for i := range parts {
		switch p := &parts[i]; {
		case p.Text != nil:
			c.text += *p.Text
		case p.Type == "thinking":
			c.reasoning += p.Thinking
		case p.Type == "redacted_thinking": // without text
		case p.Type == "tool_use":
			c.calls = append(c.calls, call{ID: p.ID, Name: p.Name, Arguments: p.Input})
		case p.Type == "tool_result" && p.Content.plain():
			c.results = append(c.results, Message{Role: Tool, Content: p.Content.text, CallID: p.CallID, Span: -1})
		default:
			return errForm // an image, for example
		}
	}
	return nil
}

// plain reports whether the content is only text.
func (c *content) plain() bool { return c.reasoning == "" && len(c.calls)+len(c.results) == 0 }

// Stored returns the messages of the column messages.
func Stored(text string) ([]Message, error) {
	var stored []storedMessage
	if err := json.Unmarshal([]byte(text), &stored); err != nil || len(stored) == 0 {
		return nil, errForm
	}
	var all []Message
	for i := range stored {
		var ok bool
		switch m := &stored[i]; {
		case m.Type != "":
			all, ok = m.appendLetta(all)
		case m.Role != "":
			all, ok = m.appendChat(all)
		case m.Kind == "approval" || m.Kind == "tool_return":
			all, ok = m.appendReturns(all), true
		}
		if !ok {
			return nil, errForm
		}
	}
	return all, nil
}

// appendChat appends a message with a role. Results of tools come before the text of the message.
func (m *storedMessage) appendChat(all []Message) ([]Message, bool) {
	out := Message{Role: names[m.Role], Content: m.Content.text, CallID: m.ToolCallID, Span: -1}
	out.Reasoning = cmp.Or(m.ReasoningContent, m.Reasoning, m.Content.reasoning)
	ok := out.Role != "" && out.addCalls(m.Content.calls) && out.addCalls(m.ToolCalls)
	if out.Role != Assistant && (out.Reasoning != "" || len(out.Calls) > 0) {
		return nil, false
	}
	if all = append(all, m.Content.results...); len(m.Content.results) > 0 && out.Role == User && out.Content == "" {
		return all, ok
	}
	return append(all, out), ok
}

// appendLetta appends the messages of a Letta message. The parts of one answer, such as its reasoning and
// its calls, are separate messages in Letta; they become one message.
func (m *storedMessage) appendLetta(all []Message) ([]Message, bool) {
	kind, ok := strings.CutSuffix(m.Type, "_message")
	if !ok {
		return nil, false
	}
	calls := m.ToolCalls
	if len(calls) == 0 && m.ToolCall != nil {
		calls = list[call]{*m.ToolCall}
	}
	switch kind {
	case System, User:
		return append(all, Message{Role: kind, Content: m.Content.text, Span: -1}), true
	case "reasoning":
		return append(all, Message{Role: Assistant, Reasoning: m.Reasoning, Span: -1}), true
	case Assistant, "tool_call", "approval_request":
		n := len(all)
		if n == 0 || all[n-1].Role != Assistant || len(all[n-1].Calls) > 0 || m.Content.text != "" && all[n-1].Content != "" {
			all, n = append(all, Message{Role: Assistant, Span: -1}), n+1
		}
		all[n-1].Content += m.Content.text
		return all, all[n-1].addCalls(calls)
	case "tool_return":
		if len(m.ToolReturns) == 0 {
			return append(all, Message{Role: Tool, Content: m.ToolReturn.text, CallID: m.ToolCallID, Span: -1}), true
		}
		return m.appendReturns(all), true
	case "approval_response":
		return m.appendReturns(all), true
	case "hidden_reasoning", "event":
		return all, true // without text
	}
	return nil, false
}

// appendReturns appends the results of tools. An approval is not a result.
func (m *storedMessage) appendReturns(all []Message) []Message {
	for _, r := range append(m.ToolReturns, m.Approvals...) {
		if r.CallID != "" {
			all = append(all, Message{Role: Tool, Content: r.Return.text, CallID: r.CallID, Span: -1})
		}
	}
	return all
}

// addCalls adds the calls to the message. It reports whether all of them have a name. Arguments that are not
// an object stay as they are.
func (m *Message) addCalls(calls []call) bool {
	for _, c := range calls {
		of := &c
		if c.Function != nil {
			of = c.Function
		}
		arguments, ok := object(of.Arguments)
		if !ok {
			var text string
			if arguments = string(of.Arguments); json.Unmarshal(of.Arguments, &text) == nil {
				arguments = text
			}
		}
		if of.Name == "" {
			return false
		}
		m.Calls = append(m.Calls, Call{ID: c.ID + c.CallID, Name: of.Name, Arguments: arguments})
	}
	return true
}
