package session

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A message is one message of a request, or an answer, in a form in which two messages that mean the
// same are equal.
type message struct {
	role string
	text string // the text without white space at both ends
	// called is true if the message calls tools, and ids is true if each of these calls has an id.
	called, ids bool
	// key is equal for two messages if they are the same. A harness can drop reasoning and write the
	// arguments of a tool call in another form. So an assistant message with tool-call ids is
	// recognized by the ids alone. Any other message is recognized by its role and its text.
	key string
	// content contains the text and the arguments too. Some engines use the same tool-call ids in
	// every conversation.
	content string
}

// isAnswer reports whether the message can prove that a harness read an answer.
func (m *message) isAnswer() bool { return m.role == "assistant" && (m.called || m.text != "") }

// parseMessage parses the JSON of a message. A text that is not a JSON object is a message without
// a role.
func parseMessage(raw json.RawMessage) message {
	var in struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCallID string          `json:"tool_call_id"`
		ToolCalls  []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	}
	if json.Unmarshal(raw, &in) != nil {
		return message{key: "?\x00" + string(raw), content: "?\x00" + string(raw)}
	}
	m := message{role: in.Role, text: strings.TrimSpace(contentText(in.Content)), called: len(in.ToolCalls) > 0}
	if !m.called {
		m.key = strings.Join([]string{"text", in.Role, in.ToolCallID, m.text}, "\x00")
		m.content = m.key
		return m
	}
	ids, content := []string{"ids", in.Role}, []string{"calls", in.Role, m.text}
	m.ids = true
	for _, c := range in.ToolCalls {
		m.ids = m.ids && c.ID != ""
		ids = append(ids, c.ID)
		content = append(content, c.Function.Name, argumentsText(c.Function.Arguments))
	}
	m.content = strings.Join(content, "\x00")
	m.key = m.content
	if m.ids {
		m.key = strings.Join(ids, "\x00")
	}
	return m
}

// contentText returns the text of a message's content: a string, null, or a list of parts. A part
// that is not text is included as JSON.
func contentText(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || json.Unmarshal(raw, &s) == nil { // null leaves s empty
		return s
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		var part struct {
			Text *string `json:"text"`
		}
		if json.Unmarshal(p, &part) == nil && part.Text != nil {
			texts[i] = *part.Text
		} else {
			texts[i] = compact(p)
		}
	}
	return strings.Join(texts, "\n")
}

// argumentsText returns the arguments of a tool call in a form that does not depend on white space
// or on the order of members.
func argumentsText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		raw = json.RawMessage(s)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return string(raw)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return string(raw)
	}
	return string(text)
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// toolNames returns the names of the tools in a list of tools. It returns nil if there are none.
func toolNames(raw json.RawMessage) map[string]bool {
	var in []struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &in) != nil || len(in) == 0 {
		return nil
	}
	names := make(map[string]bool, len(in))
	for _, t := range in {
		name := t.Function.Name
		if name == "" {
			name = t.Name
		}
		if name == "" {
			name = t.Type
		}
		names[name] = true
	}
	return names
}
