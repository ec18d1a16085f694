package enginesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// render renders the prompt with the model's chat template, as a real engine does. A byte engine
// renders each message as a line.
func (e *Engine) render(body *chatRequest) ([]int32, error) {
	if len(body.Messages) == 0 {
		return nil, errors.New("messages: want at least one")
	}
	if e.cfg.Template == nil {
		if e.cfg.Tokenizer != nil {
			return nil, errors.New("this engine has no chat template")
		}
		var text strings.Builder
		for _, m := range body.Messages {
			text.Write(m)
			text.WriteByte('\n')
		}
		return e.split("", text.String(), nil)
	}
	var messages []chat.Value
	for i, m := range body.Messages {
		m, err := e.normalized(m)
		if err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
		v, err := chat.FromJSON(m)
		if err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
		messages = append(messages, v)
	}
	in := chat.Input{Messages: chat.ListValue(messages...), AddGenerationPrompt: true, Now: time.Now()}
	if hasTools(body.Tools) {
		v, err := chat.FromJSON(body.Tools)
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		in.Tools = v
	}
	text, err := e.cfg.Template.Render(nil, in)
	if err != nil {
		return nil, err
	}
	return e.split("", string(text), nil)
}

// normalized returns the message as an engine passes it to the template. A null content becomes an
// empty string, text parts become one string, and the arguments of tool calls become objects.
// Reasoning is available to the template as reasoning_content, whichever name the client used.
// The role developer is newer than most templates, so it becomes system.
func (e *Engine) normalized(raw json.RawMessage) (json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	if content := m["content"]; content == nil || string(content) == "null" {
		m["content"] = json.RawMessage(`""`)
	} else if parts, ok := textParts(content); ok {
		m["content"], _ = json.Marshal(e.cfg.Dialect.joinParts(parts)) // encoding a string cannot fail
	}
	if string(m["role"]) == `"developer"` {
		m["role"] = json.RawMessage(`"system"`)
	}
	if r := m["reasoning"]; r != nil && m["reasoning_content"] == nil {
		m["reasoning_content"] = r
	}
	if string(m["reasoning_content"]) == "null" {
		delete(m, "reasoning_content")
	}
	delete(m, "reasoning")
	if m["tool_calls"] == nil || string(m["tool_calls"]) == "null" {
		delete(m, "tool_calls")
		return json.Marshal(m)
	}
	var calls []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	}
	if err := json.Unmarshal(m["tool_calls"], &calls); err != nil {
		return nil, fmt.Errorf("tool_calls: %w", err)
	}
	for i := range calls {
		var text string
		if json.Unmarshal(calls[i].Function.Arguments, &text) == nil && json.Valid([]byte(text)) {
			calls[i].Function.Arguments = json.RawMessage(text)
		}
	}
	var err error
	if m["tool_calls"], err = json.Marshal(calls); err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// textParts returns the texts in a content that is a list of parts. Other parts, such as images,
// are ignored.
func textParts(content json.RawMessage) (texts []string, ok bool) {
	var parts []struct {
		Text *string `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return nil, false
	}
	for _, p := range parts {
		if p.Text != nil {
			texts = append(texts, *p.Text)
		}
	}
	return texts, true
}
