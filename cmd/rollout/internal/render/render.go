// Package render renders the prompts of chat completions with a model's tokenizer and chat template, and
// parses the sampled outputs. It is the renderer of the tap's proxy.
//
// # Messages
//
// The template gets the messages as the client sent them, with the changes that vLLM and SGLang also
// make:
//
//	content            null or missing: an empty string; a list of texts: one string
//	role               developer: system, because most templates do not support developer
//	reasoning          the name becomes reasoning_content, unless another reasoning_content has a text
//	arguments          of a call: the JSON value, if the string is JSON. An empty string is {}
//	members            null values are removed
//
// A content part that is not text, such as an image, is an error. The tools are unchanged.
// chat_template_kwargs and reasoning_effort are variables of the template. A template that prints the time
// gets the local time of this machine.
package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A Renderer implements proxy.Renderer. It is safe for concurrent use.
type Renderer struct {
	model   *prompt.Model
	decoder *decode.Decoder
	now     func() time.Time
}

// New returns a Renderer for a model.
func New(m *prompt.Model) *Renderer {
	return &Renderer{model: m, decoder: decode.NewFor(m.Tokenizer, m.Template.Source()), now: time.Now}
}

// Render implements proxy.Renderer.
func (r *Renderer) Render(c *proxy.Conversation) ([]int32, error) {
	if len(c.Messages) == 0 {
		return nil, errors.New("messages: want at least one")
	}
	list := make([]chat.Value, len(c.Messages))
	for i, raw := range c.Messages {
		m, err := messageOf(raw, c.Separator)
		if err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
		list[i] = m
	}
	in := chat.Input{
		Messages: chat.ListValue(list...), AddGenerationPrompt: true, Transformers: r.model.Transformers, Now: r.now(),
	}
	var err error
	if c.Tools != nil {
		if in.Tools, err = chat.FromJSON(c.Tools); err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		if in.Tools.Kind() != chat.List {
			return nil, errors.New("tools: want a list")
		}
	}
	if in.Extra, err = variables(c); err != nil {
		return nil, err
	}
	text, err := r.model.Template.Render(nil, in)
	if err != nil {
		return nil, err
	}
	return r.model.Tokenizer.AppendTokens(nil, string(text))
}

// reserved lists the template variables that have separate members in a request.
var reserved = []string{"messages", "tools", "add_generation_prompt"}

// variables returns the template variables that a request sets.
func variables(c *proxy.Conversation) (*chat.Map, error) {
	all := chat.NewMap(0)
	if c.Variables != nil {
		v, err := chat.FromJSON(c.Variables)
		if err != nil {
			return nil, fmt.Errorf("chat_template_kwargs: %w", err)
		}
		if all = v.Map(); all == nil {
			return nil, errors.New("chat_template_kwargs: want an object")
		}
		for _, name := range reserved {
			if _, ok := all.Get(name); ok {
				return nil, fmt.Errorf("chat_template_kwargs: %s cannot be set", name)
			}
		}
	}
	if c.Effort != nil {
		v, err := chat.FromJSON(c.Effort)
		if err != nil {
			return nil, fmt.Errorf("reasoning_effort: %w", err)
		}
		if _, ok := all.Get("reasoning_effort"); !ok {
			all.Set("reasoning_effort", v)
		}
	}
	return all, nil
}

// messageOf returns a message as the template gets it.
func messageOf(raw json.RawMessage, separator string) (chat.Value, error) {
	v, err := chat.FromJSON(raw)
	if err != nil {
		return v, err
	}
	from := v.Map()
	if from == nil {
		return v, errors.New("want an object")
	}
	reasoning := reasoningOf(from)
	to := chat.NewMap(from.Len() + 1)
	for i := range from.Len() {
		k, v := from.At(i)
		key, _ := k.Text() // all keys of JSON are strings
		if key == "reasoning" || key == "reasoning_content" {
			key, v = "reasoning_content", reasoning
		}
		switch text, _ := v.Text(); {
		case key == "content":
			if v, err = contentOf(v, separator); err != nil {
				return v, fmt.Errorf("content: %w", err)
			}
		case v.Kind() == chat.None:
			continue
		case key == "role" && text == "developer":
			v = chat.StringValue("system")
		case key == "tool_calls":
			if v, err = callsOf(v); err != nil {
				return v, fmt.Errorf("tool_calls%w", err)
			}
		}
		to.Set(key, v)
	}
	if _, ok := to.Get("content"); !ok {
		to.Set("content", chat.StringValue(""))
	}
	return chat.MapValue(to), nil
}

// reasoningOf returns the member reasoning_content, or reasoning if that is null, empty or missing.
func reasoningOf(message *chat.Map) chat.Value {
	first, _ := message.Get("reasoning_content")
	second, ok := message.Get("reasoning")
	empty := first.Kind() == chat.None || first.Kind() == chat.Undefined
	if text, isText := first.Text(); ok && (empty || isText && text == "" && second.Kind() != chat.None) {
		return second
	}
	return first
}

// contentOf returns the content of a message as one string.
func contentOf(v chat.Value, separator string) (chat.Value, error) {
	switch v.Kind() {
	case chat.String:
		return v, nil
	case chat.None:
		return chat.StringValue(""), nil
	case chat.List:
	default:
		return v, errors.New("want a string or a list of parts")
	}
	var texts []string
	for _, part := range v.Items() {
		text, ok := part.Text()
		if m := part.Map(); m != nil {
			kind, _ := m.Get("type")
			if name, _ := kind.Text(); name != "text" && name != "" {
				return v, fmt.Errorf("a part of the type %q has no text; only texts can be rendered", name)
			}
			member, _ := m.Get("text")
			text, ok = member.Text()
		}
		if !ok {
			return v, errors.New("want parts with a text")
		}
		texts = append(texts, text)
	}
	return chat.StringValue(strings.Join(texts, separator)), nil
}

// callsOf returns tool calls with parsed arguments.
func callsOf(v chat.Value) (chat.Value, error) {
	if v.Kind() != chat.List {
		return v, errors.New(": want a list")
	}
	calls := slices.Clone(v.Items())
	for i, c := range calls {
		call := c.Map()
		if call == nil {
			return v, fmt.Errorf("[%d]: want an object", i)
		}
		f, _ := call.Get("function")
		function := f.Map()
		if function == nil {
			return v, fmt.Errorf("[%d]: want the member function", i)
		}
		own := chat.NewMap(3)
		for _, key := range []string{"id", "type"} {
			if v, ok := call.Get(key); ok {
				own.Set(key, v)
			}
		}
		name, _ := function.Get("name")
		parsed := chat.NewMap(2)
		parsed.Set("name", name)
		parsed.Set("arguments", argumentsOf(function))
		own.Set("function", chat.MapValue(parsed))
		calls[i] = chat.MapValue(own)
	}
	return chat.ListValue(calls...), nil
}

// argumentsOf returns the arguments of a call. A string that is not JSON stays a string.
func argumentsOf(function *chat.Map) chat.Value {
	v, _ := function.Get("arguments")
	text, ok := v.Text()
	switch {
	case v.Kind() == chat.Undefined, v.Kind() == chat.None, ok && text == "":
		return chat.MapValue(chat.NewMap(0))
	case ok:
		if parsed, err := chat.FromJSONText(text); err == nil {
			return parsed
		}
	}
	return v
}
