package session

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A message is one message of a request, or an answer, in a form in which two messages that mean the
// same are equal.
type message struct {
	role   string
	text   string    // the text without white space at both ends
	uses   []toolUse // the tools that the message calls
	ids    bool      // each of them has an id
	toolID string    // of a tool result: the id of the call
	// key is equal for two messages if they are the same. A harness can drop reasoning and write the
	// arguments of a tool call in another form. So an assistant message with tool-call ids is
	// recognized by the ids and the names. Any other message is recognized by its role and its text.
	key string
	// content is the text, and the names and arguments of the tool calls. Some engines use the same
	// tool-call ids in every conversation.
	content string
	// Two messages have the same number if they have the same key, and the same full number if they
	// also have the same content.
	number, full int32
	task         bool // it is a user message that contains the task's prompt
}

// A toolUse is one call of a tool.
type toolUse struct {
	id, name  string
	arguments string // in the form of argumentsText
	written   string // the arguments as the model wrote them
}

// called reports whether the message calls tools.
func (m *message) called() bool { return len(m.uses) > 0 }

// fullKey returns the key with the content.
func (m *message) fullKey() string {
	if m.ids {
		return m.key + "\x00" + m.content
	}
	return m.key
}

// isAnswer reports whether the message can prove that a harness read an answer.
func (m *message) isAnswer() bool { return m.role == "assistant" && (m.called() || m.text != "") }

// derived reports whether the message, which is in the place of the answer, can be that answer in
// another form. If both call tools, they must share a call. Otherwise one text contains the other, or
// the text contains the names and the arguments of all tool calls.
func (m *message) derived(answer *message) bool {
	text, want := plain(m.text), plain(answer.text)
	switch {
	case m.content == answer.content:
		return true
	case m.called() && answer.called():
		return slices.ContainsFunc(answer.uses, func(u toolUse) bool { return slices.ContainsFunc(m.uses, u.becomes) })
	case text == "":
		return false
	case want != "":
		return partOf(want, text) || partOf(text, want)
	}
	return answer.called() && !slices.ContainsFunc(answer.uses, func(u toolUse) bool {
		return !hasWord(text, u.name) || !u.argumentsIn(text)
	})
}

// becomes reports whether v can be the call u in another form: both have the same name, and the same
// id or arguments. Engines reuse ids. Some harnesses replace the name of an unknown tool: they
// write it in lower case, or they move it to the arguments.
func (u toolUse) becomes(v toolUse) bool {
	if u.name == v.name && u.arguments == v.arguments {
		return true
	}
	return u.id != "" && u.id == v.id && (strings.EqualFold(u.name, v.name) || strings.Contains(v.arguments, encode(u.name)))
}

// partOf reports whether a text contains a part. A part shorter than minQuote could be in the text by
// accident. So it must be the beginning of the text and end with a whole word.
func partOf(part, text string) bool {
	if len(part) >= minQuote {
		return strings.Contains(text, part)
	}
	return strings.HasPrefix(text, part) && !startsInWord(text[len(part):])
}

// hasWord reports whether a text contains a word that is not a part of a longer word.
func hasWord(text, word string) bool {
	for word != "" {
		before, after, found := strings.Cut(text, word)
		if !found {
			break
		}
		if last, _ := utf8.DecodeLastRuneInString(before); !inWord(last) && !startsInWord(after) {
			return true
		}
		text = after
	}
	return false
}

func startsInWord(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return inWord(r)
}

func inWord(r rune) bool {
	return r != utf8.RuneError && (r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r))
}

// argumentsIn reports whether a text in the form of plain contains the arguments: all strings, as they
// are or in the form of JSON. Without strings, it must contain all other values, in the form of JSON
// or Python. Without values, it must contain the JSON of the arguments.
func (u *toolUse) argumentsIn(text string) bool {
	d := json.NewDecoder(strings.NewReader(u.arguments))
	d.UseNumber()
	var arguments any
	if d.Decode(&arguments) != nil {
		return false
	}
	texts, others := 0, 0
	all, allOthers := true, true
	eachValue(arguments, func(v any) {
		switch s, ok := v.(string); {
		case ok && plain(s) != "":
			texts++
			all = all && (strings.Contains(text, plain(s)) || strings.Contains(text, plain(strings.Trim(encode(s), `"`))))
		case !ok:
			others++
			allOthers = allOthers && (hasWord(text, encode(v)) || hasWord(text, python[encode(v)]))
		}
	})
	switch {
	case texts > 0:
		return all
	case others > 0:
		return allOthers
	}
	return strings.Contains(text, plain(u.arguments))
}

// python contains the form in Python of values in the form of JSON.
var python = map[string]string{"true": "True", "false": "False", "null": "None"}

// eachValue calls f for each string, number, boolean and null in a JSON value.
func eachValue(v any, f func(any)) {
	switch v := v.(type) {
	case map[string]any:
		for _, m := range v {
			eachValue(m, f)
		}
	case []any:
		for _, m := range v {
			eachValue(m, f)
		}
	default:
		f(v)
	}
}

// plain returns the text without backslashes and with a single space for white space, because
// harnesses quote texts in different ways.
func plain(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, `\`, "")), " ")
}

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
	m := message{role: in.Role, text: strings.TrimSpace(contentText(in.Content)), toolID: in.ToolCallID}
	if len(in.ToolCalls) == 0 {
		m.key = strings.Join([]string{"text", in.Role, in.ToolCallID, m.text}, "\x00")
		m.content = m.key
		return m
	}
	ids, content := []string{"ids", in.Role}, []string{"calls", in.Role, m.text}
	m.ids = true
	for _, c := range in.ToolCalls {
		written := string(c.Function.Arguments)
		_ = json.Unmarshal(c.Function.Arguments, &written) // usually a JSON string
		u := toolUse{c.ID, c.Function.Name, argumentsText(written), written}
		m.uses = append(m.uses, u)
		m.ids = m.ids && u.id != ""
		ids = append(ids, u.id, u.name)
		content = append(content, u.name, u.arguments)
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
			var text bytes.Buffer
			_ = json.Compact(&text, p) // cannot fail
			texts[i] = text.String()
		}
	}
	return strings.Join(texts, "\n")
}

// argumentsText returns the arguments of a tool call in a form that does not depend on white space
// or on the order of members.
func argumentsText(written string) string {
	d := json.NewDecoder(strings.NewReader(written))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return written
	}
	return encode(v)
}

// encode returns the JSON of a value that was parsed from JSON.
func encode(v any) string {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // cannot fail
	return strings.TrimSpace(text.String())
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
		names[cmp.Or(t.Function.Name, t.Name, t.Type)] = true
	}
	return names
}
