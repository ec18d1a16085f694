package enginesim

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// A chatAnswer encodes a generation in the engine's dialect.
type chatAnswer struct {
	e      *Engine
	g      *generation
	body   *chatRequest
	asked  asking
	id     string
	parsed parsed
	finish string // OpenAI's finish_reason
}

// read separates the model's text into reasoning, content and, if the request has tools, tool calls.
func (a *chatAnswer) read() {
	c := &a.g.call
	a.parsed = a.e.parse(c.Text, hasTools(a.body.Tools), func(i int) string {
		if a.g.unique {
			return fmt.Sprintf("call_%08x%06x_%d", uint32(PromptSeed(c.InputIDs)), c.N, i)
		}
		return fmt.Sprintf("call_%08x_%d", uint32(PromptSeed(c.InputIDs)), i)
	})
	a.finish = c.Finish.Type
	// vLLM reports tool calls even if the output reached the limit after them.
	if len(a.parsed.calls) > 0 && (a.finish == "stop" || !a.e.cfg.Dialect.sglang()) {
		a.finish = "tool_calls"
	}
	c.FinishReason = a.finish
}

// listed returns how many of the first n sampled ids an unstreamed answer contains.
func (a *chatAnswer) listed(n int) int {
	if a.asked.output || a.asked.extOutput {
		return n
	}
	return 0
}

// logprobs returns the log-probabilities of the tokens [from, to), or nil if the request did not
// ask for them. Except for vLLM's token_id:N, they contain no ids.
func (a *chatAnswer) logprobs(from, to int) any {
	if !a.asked.logprob {
		return nil
	}
	content := []any{}
	for i := from; i < to; i++ {
		id := a.g.call.OutputIDs[i]
		token, _ := a.e.text([]int32{id}, false) // cannot fail, because the same output has already been decoded
		raw := make([]int, len(token))
		for j := range raw {
			raw[j] = int(token[j])
		}
		if a.asked.tokenIDText {
			token = fmt.Sprintf("token_id:%d", id)
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

// stopped returns the member of a choice that says which stop token ended the output. vLLM names
// only a stop token that the request named, and so never the end of a turn.
func (a *chatAnswer) stopped() (name string, value any) {
	if !a.e.cfg.Dialect.sglang() {
		return "stop_reason", nil
	}
	if m := a.g.call.Finish.Matched; m != nil {
		return "matched_stop", *m
	}
	return "matched_stop", nil
}

// whole returns an answer that is not a stream.
func (a *chatAnswer) whole() []byte {
	c, d := &a.g.call, a.e.cfg.Dialect
	message := map[string]any{"role": "assistant", "content": a.parsed.content, "refusal": nil, d.reasoningName(): nil}
	if d.sglang() {
		delete(message, "refusal") // SGLang has no such member
	}
	if a.parsed.reasoning != "" {
		message[d.reasoningName()] = a.parsed.reasoning
	}
	if len(a.parsed.calls) > 0 {
		var calls []any
		for i, call := range a.parsed.calls {
			calls = append(calls, map[string]any{
				"id": call.id, "index": i, "type": "function", "function": map[string]any{"name": call.name, "arguments": call.arguments},
			})
		}
		message["tool_calls"] = calls
		if a.parsed.content == "" && !d.sglang() { // SGLang keeps the empty string
			message["content"] = nil
		}
	}
	choice := map[string]any{"index": 0, "message": message, "logprobs": a.logprobs(0, len(c.OutputIDs)), "finish_reason": a.finish}
	stopName, stop := a.stopped()
	choice[stopName] = stop
	out := a.head("chat.completion")
	maps.Copy(out, map[string]any{"choices": []any{choice}, "usage": a.usage()})
	a.identify(out, choice)
	return object(out)
}

// identify adds the ids to an unstreamed answer. vLLM sends null for ids that are not requested,
// SGLang omits them.
func (a *chatAnswer) identify(out, choice map[string]any) {
	c, d := &a.g.call, a.e.cfg.Dialect
	if !d.sglang() {
		out["prompt_logprobs"] = nil
		if d == DialectVLLM {
			choice["token_ids"], out["prompt_token_ids"] = nil, nil
		}
		if a.asked.output {
			choice["token_ids"], out["prompt_token_ids"] = slices.Clone(c.OutputIDs), c.InputIDs
		}
		if d == DialectVLLM {
			choice["routed_experts"] = a.e.npy(c)
		}
		return
	}
	out["metadata"] = map[string]any{"weight_version": c.Version}
	if a.asked.prompt {
		choice["prompt_token_ids"] = c.InputIDs
	}
	if a.asked.output {
		choice[d.outputName()] = c.OutputIDs
	}
	if a.asked.meta {
		var generated struct {
			Meta json.RawMessage `json:"meta_info"`
		}
		// An answer with a planted NaN is not JSON. Then the member is null.
		_ = json.Unmarshal(a.e.generated(a.g, a.id, a.asked.logprob, len(c.OutputIDs)), &generated)
		choice["meta_info"] = generated.Meta
	}
	if ext := a.ext(); len(ext) > 0 {
		out["sglext"] = ext
	}
}

// ext returns SGLang's sglext with the requested ids and routed experts. There is one list of sampled ids per choice.
func (a *chatAnswer) ext() map[string]any {
	ext := map[string]any{}
	if a.asked.extInput {
		ext["input_ids"] = a.g.call.InputIDs
	}
	if a.asked.extOutput {
		ext["output_ids"] = [][]int32{a.g.call.OutputIDs}
	}
	if a.g.experts && !a.asked.meta { // otherwise in meta_info
		data, _ := a.e.routed(&a.g.call, len(a.g.call.OutputIDs))
		ext["routed_experts"] = data // encoding/json writes bytes as base64
	}
	return ext
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

// events yields the events of a stream. The first event contains the role and, in vLLM, the
// prompt's ids. The following events contain new text, and in vLLM new ids even without text. In
// vLLM, the last of them contains the finish reason. SGLang sends a separate event for the finish
// reason, and then one for sglext, without choices. If requested, the usage follows.
func (a *chatAnswer) events() iter.Seq[event] {
	c, d := &a.g.call, a.e.cfg.Dialect
	listed := 0
	choice := func(members, more map[string]any) event {
		out := a.head("chat.completion.chunk")
		members["index"] = 0
		out["choices"] = []any{members}
		maps.Copy(out, more)
		return event{object(out), listed}
	}
	tail := func(members map[string]any) event {
		out := a.head("chat.completion.chunk")
		out["choices"] = []any{}
		maps.Copy(out, members)
		return event{object(out), listed}
	}
	return func(yield func(event) bool) {
		more := map[string]any{}
		if a.asked.prompt && !d.sglang() {
			more["prompt_token_ids"] = c.InputIDs
		}
		first := map[string]any{"delta": map[string]any{"role": "assistant", "content": ""}, "logprobs": nil, "finish_reason": nil}
		if !yield(choice(first, more)) {
			return
		}
		from, seen := 0, 0
		for to := range chunks(len(c.OutputIDs)) {
			last := to == len(c.OutputIDs)
			now := a.parsed.length
			if !last {
				text, _ := a.e.text(c.OutputIDs[:to], true) // cannot fail, as above
				now = min(now, len(strings.TrimRight(text, "\uFFFD")))
			}
			members := map[string]any{"delta": a.delta(seen, now), "logprobs": a.logprobs(from, to), "finish_reason": nil}
			seen = now
			if a.asked.output && !d.sglang() {
				members["token_ids"] = slices.Clone(c.OutputIDs[from:to])
				listed = to
			}
			if last && !d.sglang() {
				members["finish_reason"], members["stop_reason"] = a.finish, nil
			}
			if !yield(choice(members, nil)) {
				return
			}
			from = to
		}
		if d.sglang() {
			name, stop := a.stopped()
			if !yield(choice(map[string]any{"delta": map[string]any{}, "logprobs": nil, "finish_reason": a.finish, name: stop}, nil)) {
				return
			}
			if ext := a.ext(); len(ext) > 0 {
				listed = a.listed(len(c.OutputIDs))
				if !yield(tail(map[string]any{"sglext": ext})) {
					return
				}
			}
		}
		if a.body.Options.Usage {
			yield(tail(map[string]any{"usage": a.usage()}))
		}
	}
}

// delta returns what becomes visible between the first from and the first to bytes of the text.
func (a *chatAnswer) delta(from, to int) map[string]any {
	delta := map[string]any{}
	var content, reasoning string
	var calls []any
	for i := range a.parsed.pieces {
		p := &a.parsed.pieces[i]
		had, has := a.parsed.seen(p, from), a.parsed.seen(p, to)
		if had == has {
			continue
		}
		switch text := p.text[had:has]; p.kind {
		case reasoningPiece:
			reasoning += text
		case contentPiece:
			content += text
		case namePiece:
			calls = append(calls, map[string]any{
				"index": p.call, "id": a.parsed.calls[p.call].id, "type": "function", "function": map[string]any{"name": text, "arguments": ""},
			})
		case argumentsPiece:
			calls = append(calls, map[string]any{"index": p.call, "function": map[string]any{"arguments": text}})
		}
	}
	if reasoning != "" {
		delta[a.e.cfg.Dialect.reasoningName()] = reasoning
	}
	if content != "" {
		delta["content"] = content
	}
	if calls != nil {
		delta["tool_calls"] = calls
	}
	return delta
}
