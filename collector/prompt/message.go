package prompt

import (
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A message is one message as the server's native adapter passes it to the chat template. Source:
// adapters/sglang_native_adapter.py:99-157 of letta-ai/letta.
type message struct {
	role    string
	content string
	calls   []call
	callID  string // for a tool message: the id of the first call that it answers
	name    string // for a tool message: the name of the tool of that call

	// seen and scrubbed cache the template value of the message, with and without the text before
	// tool calls. Every later prompt reuses these values.
	seen, scrubbed chat.Value
}

type call struct {
	id, name  string
	arguments string // as JSON
}

// The roles of messages that the server passes to the template.
const (
	roleSystem    = "system"
	roleAssistant = "assistant"
	roleTool      = "tool"
	roleApproval  = "approval"
)

// roleValue returns a role as the template sees it: a member of MessageRole, which is both a str
// and an Enum.
//
// Source: schemas/enums.py:110.
func roleValue(role string) chat.Value {
	if v, ok := roleValues[role]; ok {
		return v
	}
	return chat.StringValue(role)
}

var roleValues = func() map[string]chat.Value {
	all := map[string]chat.Value{}
	for _, role := range []string{roleAssistant, "user", roleTool, "function", roleSystem, roleApproval, "summary"} {
		all[role] = chat.EnumValue("MessageRole."+role, role)
	}
	return all
}()

// text returns the content for the template. If scrub is true, it returns an empty string for an
// assistant message with tool calls.
func (m *message) text(scrub bool) string {
	if scrub && m.role == roleAssistant && len(m.calls) > 0 {
		return ""
	}
	return m.content
}

func (m *message) value(scrub bool) chat.Value {
	v := &m.seen
	if scrub {
		v = &m.scrubbed
	}
	if v.Kind() != chat.Undefined {
		return *v
	}
	d := chat.NewMap(4)
	d.Set("role", roleValue(m.role))
	d.Set("content", chat.StringValue(m.text(scrub)))
	if len(m.calls) > 0 {
		calls := make([]chat.Value, len(m.calls))
		for i := range m.calls {
			calls[i] = m.calls[i].value()
		}
		d.Set("tool_calls", chat.ListValue(calls...))
	}
	if m.callID != "" {
		d.Set("tool_call_id", chat.StringValue(m.callID))
	}
	if m.role == roleTool && m.name != "" {
		d.Set("name", chat.StringValue(m.name))
	}
	*v = chat.MapValue(d)
	return *v
}

// shows reports whether the messages m and o are the same for a template. If scrub is true, it
// ignores the text before the tool calls in o.
func (m *message) shows(o *message, scrub bool) bool {
	if m.role != o.role || m.content != o.text(scrub) || m.callID != o.callID || m.role == roleTool && m.name != o.name {
		return false
	}
	return slices.Equal(m.calls, o.calls)
}

func (c *call) value() chat.Value {
	f := chat.NewMap(2)
	f.Set("name", chat.StringValue(c.name))
	f.Set("arguments", c.args())
	d := chat.NewMap(3)
	d.Set("id", chat.StringValue(c.id))
	d.Set("type", chat.StringValue("function"))
	d.Set("function", chat.MapValue(f))
	return chat.MapValue(d)
}

// args parses the arguments. It keeps the order of keys and the types of numbers. Invalid JSON
// becomes an empty object, as on the server.
func (c *call) args() chat.Value {
	v, err := chat.FromJSONText(c.arguments)
	if err != nil {
		return chat.MapValue(chat.NewMap(0))
	}
	return v
}

// A history contains the messages of one agent as the server keeps them in memory.
type history []message

func (h history) view(scrub bool) chat.Value {
	list := make([]chat.Value, len(h))
	for i := range h {
		list[i] = h[i].value(scrub)
	}
	return chat.ListValue(list...)
}

// reload applies the change that the server makes between two requests, when it stores and reloads
// the messages. It removes NUL characters, which cannot be stored.
func (h history) reload() {
	for i := range h {
		if m := &h[i]; strings.Contains(m.content, "\x00") {
			m.content = strings.ReplaceAll(m.content, "\x00", "")
			m.seen, m.scrubbed = chat.Value{}, chat.Value{}
		}
	}
}

// appendAssistant appends the messages that the server stores for one generation. Usually, this is
// one message. If all calls of the generation wait for the client, the message has the role
// approval, and an empty message for the client's answer follows. A generation with neither text
// nor calls is not stored.
func (h history) appendAssistant(content string, calls []call, of decisions) history {
	switch {
	case len(calls) > 0 && of.all(calls):
		return append(h,
			message{role: roleApproval, content: content, calls: calls},
			message{role: roleApproval})
	case content != "" || len(calls) > 0:
		return append(h, message{role: roleAssistant, content: content, calls: calls})
	}
	return h
}
