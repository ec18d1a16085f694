package enginesim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A chatRequest is the body of a request to /v1/chat/completions.
type chatRequest struct {
	Model    string            `json:"model"`
	Messages []json.RawMessage `json:"messages"`
	Tools    json.RawMessage   `json:"tools"`
	Logprobs bool              `json:"logprobs"`
	Stream   bool              `json:"stream"`
	Options  struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
	TokenIDs bool `json:"return_token_ids"`
}

func (e *Engine) chat(w http.ResponseWriter, r *http.Request) {
	g := generation{call: Call{N: e.truth.begin(), Began: time.Now(), Path: "/v1/chat/completions"}}
	var raw json.RawMessage
	var body chatRequest
	err := readJSON(w, r, &raw)
	if err == nil {
		err = json.Unmarshal(raw, &body)
	}
	var limit int64
	if err == nil {
		g.call.Sampling = withoutTexts(raw)
		g.call.InputIDs, err = e.render(&body)
	}
	if err == nil {
		limit, err = e.limit(g.call.Sampling, len(g.call.InputIDs), "max_completion_tokens", "max_tokens")
	}
	if err != nil {
		e.fault(w, &g, http.StatusBadRequest, err.Error())
		return
	}
	summary := len(body.Messages) > 0 && bytes.Contains(body.Messages[0], []byte("ummar")) && !hasTools(body.Tools)
	if !e.run(r.Context(), w, &g, limit, summary) {
		return
	}
	a := chatAnswer{e: e, g: &g, body: &body, id: fmt.Sprintf("chatcmpl-%016x%04x", PromptSeed(g.call.InputIDs), g.call.N)}
	a.read()
	if body.Stream {
		stream(w, a.events())
		return
	}
	send(w, http.StatusOK, a.whole())
}

func hasTools(tools json.RawMessage) bool {
	return len(tools) > 0 && string(tools) != "null" && string(tools) != "[]"
}

// withoutTexts returns the body without messages and tools, so that the sampling settings remain.
func withoutTexts(raw json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	delete(all, "messages")
	delete(all, "tools")
	b, _ := json.Marshal(all) // cannot fail, because all values were decoded from JSON
	return b
}

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
		m, err := withObjects(m)
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

// withObjects returns the message as an engine passes it to the template. A null content becomes an
// empty string, and the arguments of tool calls become objects.
func withObjects(raw json.RawMessage) (json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	if string(m["content"]) == "null" {
		m["content"] = json.RawMessage(`""`)
	}
	if m["tool_calls"] == nil {
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

// A chatAnswer encodes a generation in vLLM's format.
type chatAnswer struct {
	e      *Engine
	g      *generation
	body   *chatRequest
	id     string
	text   string
	calls  []any
	finish string // OpenAI's finish_reason
}

var calledTool = regexp.MustCompile(`(?s)<tool_call>\s*(\{.*?\})\s*</tool_call>`)

// read extracts the tool calls from the text, if the request has tools.
func (a *chatAnswer) read() {
	a.text, a.finish = a.g.call.Text, a.g.call.Finish.Type
	if !hasTools(a.body.Tools) {
		return
	}
	var calls []any
	for i, m := range calledTool.FindAllStringSubmatch(a.text, -1) {
		var call struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		}
		if json.Unmarshal([]byte(m[1]), &call) != nil || call.Name == "" {
			return
		}
		calls = append(calls, map[string]any{
			"id": fmt.Sprintf("call_%08x_%d", uint32(PromptSeed(a.g.call.InputIDs)), i), "index": i, "type": "function",
			"function": map[string]any{"name": call.Name, "arguments": string(call.Arguments)},
		})
	}
	if len(calls) > 0 {
		a.text, a.calls, a.finish = strings.TrimSpace(calledTool.ReplaceAllString(a.text, "")), calls, "tool_calls"
	}
}

// logprobs returns the log-probabilities of the tokens [from, to), or nil if the request did not
// ask for them.
func (a *chatAnswer) logprobs(from, to int) any {
	if !a.body.Logprobs {
		return nil
	}
	content := []any{}
	for i := from; i < to; i++ {
		token, _ := a.e.text(a.g.call.OutputIDs[i:i+1], false) // cannot fail, because the same output has already been decoded
		raw := make([]int, len(token))
		for j := range raw {
			raw[j] = int(token[j])
		}
		content = append(content, map[string]any{
			"token": token, "logprob": json.RawMessage(a.g.appendLogprob(nil, i, "-9999.0")), "bytes": raw, "top_logprobs": []any{},
		})
	}
	return map[string]any{"content": content}
}

func (a *chatAnswer) usage() map[string]any {
	c := &a.g.call
	return map[string]any{
		"prompt_tokens": len(c.InputIDs), "completion_tokens": len(c.OutputIDs), "total_tokens": len(c.InputIDs) + len(c.OutputIDs),
		"prompt_tokens_details": map[string]any{"cached_tokens": 0},
	}
}

func (a *chatAnswer) head(object string) map[string]any {
	return map[string]any{"id": a.id, "object": object, "created": a.g.call.Began.Unix(), "model": a.e.cfg.Model}
}

func (a *chatAnswer) whole() []byte {
	c := &a.g.call
	message := map[string]any{"role": "assistant", "content": a.text, "refusal": nil, "reasoning": nil}
	if len(a.calls) > 0 {
		message["tool_calls"] = a.calls
		if a.text == "" {
			message["content"] = nil
		}
	}
	choice := map[string]any{
		"index": 0, "message": message, "logprobs": a.logprobs(0, len(c.OutputIDs)),
		"finish_reason": a.finish, "stop_reason": nil, "token_ids": nil,
	}
	out := a.head("chat.completion")
	maps.Copy(out, map[string]any{"choices": []any{choice}, "usage": a.usage(), "prompt_logprobs": nil, "prompt_token_ids": nil})
	if a.body.TokenIDs {
		choice["token_ids"], out["prompt_token_ids"] = slices.Clone(c.OutputIDs), c.InputIDs
	}
	return object(out)
}

// object encodes v as JSON. If v contains a planted log-probability that is not JSON, object
// returns an error object.
func object(v map[string]any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte(`{"error":{"message":"a planted log-probability is not JSON; vLLM prints -9999.0"}}`)
	}
	return b
}

// events yields the events of a stream. The first event contains the role and the prompt's ids.
// Each following event contains new tokens. The last of these events also contains the tool calls
// and the finish reason. If requested, a final event contains the usage.
func (a *chatAnswer) events() iter.Seq[[]byte] {
	c := &a.g.call
	event := func(choice map[string]any, more map[string]any) []byte {
		out := a.head("chat.completion.chunk")
		choice["index"] = 0
		out["choices"] = []any{choice}
		maps.Copy(out, more)
		return object(out)
	}
	return func(yield func([]byte) bool) {
		more := map[string]any{}
		if a.body.TokenIDs {
			more["prompt_token_ids"] = c.InputIDs
		}
		if !yield(event(map[string]any{"delta": map[string]any{"role": "assistant", "content": ""}, "logprobs": nil, "finish_reason": nil}, more)) {
			return
		}
		from, said := 0, 0
		for to := range chunks(len(c.OutputIDs)) {
			delta := map[string]any{}
			if len(a.calls) == 0 {
				now := a.text
				if to < len(c.OutputIDs) {
					now, _ = a.e.text(c.OutputIDs[:to], true) // cannot fail, as above
					now = strings.TrimRight(now, "\uFFFD")
				}
				delta["content"] = now[said:]
				said = len(now)
			} else if to == len(c.OutputIDs) {
				delta["content"], delta["tool_calls"] = a.text, a.calls
			}
			choice := map[string]any{"delta": delta, "logprobs": a.logprobs(from, to), "finish_reason": nil}
			if a.body.TokenIDs {
				choice["token_ids"] = slices.Clone(c.OutputIDs[from:to])
			}
			if to == len(c.OutputIDs) {
				choice["finish_reason"], choice["stop_reason"] = a.finish, nil
			}
			if !yield(event(choice, nil)) {
				return
			}
			from = to
		}
		if a.body.Options.Usage {
			out := a.head("chat.completion.chunk")
			maps.Copy(out, map[string]any{"choices": []any{}, "usage": a.usage()})
			yield(object(out))
		}
	}
}
