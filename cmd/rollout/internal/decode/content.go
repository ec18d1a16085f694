package decode

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// The text around tool calls and results. Templates of many families use it.
var (
	toolCall     = regexp.MustCompile(`(?s)<tool_call>(.*?)</tool_call>`)
	toolResponse = regexp.MustCompile(`(?s)<tool_response>(.*?)</tool_response>`)
)

const thinkEnd = "</think>"

// finish splits the text of the messages into reasoning, calls and results, and links results to calls.
func (p *parser) finish() []Message {
	all := make([]Message, 0, len(p.all))
	calls := 0
	for _, m := range p.all {
		switch m.Role {
		case Assistant:
			m.split(&calls)
			all = append(all, m)
		case User, Tool:
			all = append(all, m.results()...)
		default:
			m.Content = strings.TrimLeft(m.Content, "\n")
			all = append(all, m)
		}
	}
	link(all)
	return all
}

// split moves the reasoning and the tool calls out of the content. A call that is not valid JSON stays.
func (m *Message) split(calls *int) {
	text := m.Content
	if think, after, ok := strings.Cut(text, thinkEnd); ok {
		m.Reasoning, text = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(think), "<think>")), after
	} else if think, ok := strings.CutPrefix(strings.TrimSpace(text), "<think>"); ok { // cut off
		m.Reasoning, text = strings.TrimSpace(think), ""
	}
	text = toolCall.ReplaceAllStringFunc(text, func(block string) string {
		name, arguments, ok := parseCall(toolCall.FindStringSubmatch(block)[1])
		if !ok {
			return block
		}
		*calls++
		m.Calls = append(m.Calls, Call{"call_" + strconv.Itoa(*calls), name, arguments})
		return ""
	})
	m.Content = strings.TrimSpace(text)
}

// parseCall parses a call such as {"name": "add", "arguments": {"a": 1}}.
func parseCall(text string) (name, arguments string, ok bool) {
	var call struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"` // of Llama
	}
	if strictjson.Check(text, strictjson.Options{}) != nil || json.Unmarshal([]byte(text), &call) != nil || call.Name == "" {
		return "", "", false
	}
	if call.Arguments == nil {
		call.Arguments = call.Parameters
	}
	arguments, ok = object(call.Arguments)
	return call.Name, arguments, ok
}

// object returns a JSON object. The raw value can also be a string that contains the object, or be missing.
func object(raw json.RawMessage) (string, bool) {
	text := strings.TrimSpace(string(raw))
	if strings.HasPrefix(text, `"`) {
		if json.Unmarshal(raw, &text) != nil {
			return "", false
		}
		text = strings.TrimSpace(text)
	}
	if text == "" {
		return "{}", true
	}
	if !strings.HasPrefix(text, "{") || strictjson.Check(text, strictjson.Options{}) != nil || !json.Valid([]byte(text)) {
		return "", false
	}
	return text, true
}

// results splits a message that contains only results of tools into one message per result.
func (m *Message) results() []Message {
	m.Content = strings.TrimLeft(m.Content, "\n")
	found := toolResponse.FindAllStringSubmatch(m.Content, -1)
	if len(found) == 0 || strings.TrimSpace(toolResponse.ReplaceAllString(m.Content, "")) != "" {
		return []Message{*m}
	}
	var all []Message
	for _, f := range found {
		all = append(all, Message{Role: Tool, Content: strings.Trim(f[1], "\n"), Span: -1})
	}
	return all
}

// link sets CallID in the results that follow the calls of an assistant, if their number is the number of
// the calls. Templates write the results in the order of the calls.
func link(all []Message) {
	for i := range all {
		n := 0
		for i+1+n < len(all) && all[i+1+n].Role == Tool {
			n++
		}
		if calls := all[i].Calls; n > 0 && n == len(calls) {
			for k := range calls {
				all[i+1+k].CallID = calls[k].ID
			}
		}
	}
}
