package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/rollout-rl/rollout/tokenize"
)

// A carriage states how the proxy sends a member of a chat completion whose prompt the tap renders.
// The zero carriage means that the member is not sent. It has no effect on the output, or only
// through the prompt.
type carriage struct {
	// sglang is the name in sampling_params of SGLang's /generate, and vllm the name in vLLM's
	// /v1/completions. Both are empty if the member is not sent.
	sglang, vllm string
	// only contains the values that have no effect. Any other value is refused. If it is nil, all values are
	// allowed.
	only []string
}

// renderedMembers contains all members that a rendered chat completion can have. The value null has no
// effect. Any other member is refused, because it could change the sampling or the prompt.
//
// Source for SGLang: python/sglang/srt/sampling/sampling_params.py (SamplingParams) and
// entrypoints/openai/protocol.py (ChatCompletionRequest.to_sampling_params). Source for vLLM:
// vllm/entrypoints/openai/completion/protocol.py (CompletionRequest).
var renderedMembers = map[string]carriage{
	// the prompt
	"messages": {}, "tools": {}, "chat_template_kwargs": {}, "reasoning_effort": {},
	"add_generation_prompt": {only: []string{"true"}}, "continue_final_message": {only: []string{"false"}},
	// the sampling
	"temperature":           {sglang: "temperature", vllm: "temperature"},
	"top_p":                 {sglang: "top_p", vllm: "top_p"},
	"top_k":                 {sglang: "top_k", vllm: "top_k"},
	"min_p":                 {sglang: "min_p", vllm: "min_p"},
	"frequency_penalty":     {sglang: "frequency_penalty", vllm: "frequency_penalty"},
	"presence_penalty":      {sglang: "presence_penalty", vllm: "presence_penalty"},
	"repetition_penalty":    {sglang: "repetition_penalty", vllm: "repetition_penalty"},
	"seed":                  {sglang: "sampling_seed", vllm: "seed"},
	"stop":                  {sglang: "stop", vllm: "stop"},
	"stop_token_ids":        {sglang: "stop_token_ids", vllm: "stop_token_ids"},
	"ignore_eos":            {sglang: "ignore_eos", vllm: "ignore_eos"},
	"min_tokens":            {sglang: "min_new_tokens", vllm: "min_tokens"},
	"max_completion_tokens": {sglang: "max_new_tokens", vllm: "max_tokens"},
	"max_tokens":            {sglang: "max_new_tokens", vllm: "max_tokens"}, // unless max_completion_tokens is set
	"n":                     {only: []string{"1"}},
	"tool_choice":           {only: []string{`"auto"`, `"none"`}},
	"parallel_tool_calls":   {only: []string{"true", "false"}}, // see Output.Single
	"response_format":       {only: []string{`{"type":"text"}`}},
	"logit_bias":            {only: []string{`{}`}},
	"modalities":            {only: []string{`["text"]`}},
	// the tap determines the form of the answer
	"model": {}, "stream": {}, "stream_options": {}, "return_token_ids": {}, "return_prompt_token_ids": {}, "return_meta_info": {},
	"logprobs": {only: []string{"false"}}, "top_logprobs": {only: []string{"0"}},
	"skip_special_tokens": {}, "spaces_between_special_tokens": {}, "no_stop_trim": {only: []string{"false"}},
	"include_stop_str_in_output": {only: []string{"false"}}, "separate_reasoning": {}, "stream_reasoning": {}, "include_reasoning": {},
	// the account and the cache of a hosted API
	"user": {}, "metadata": {}, "store": {}, "service_tier": {}, "prompt_cache_key": {}, "prompt_cache_retention": {},
	"safety_identifier": {}, "verbosity": {},
}

// A renderedRequest contains the members of a chat completion whose prompt the tap renders.
type renderedRequest struct {
	conversation Conversation
	callable     json.RawMessage // the tools that the output can call
	single       bool            // the client wants at most one call
	// sampling contains the members for the engine, by the engine's names. The values are JSON.
	sampling map[string]json.RawMessage
}

// readRendered reads the body of a chat completion for an engine. The result shares the memory of body. An
// error is a refusal.
func readRendered(s *tokenize.Scanner, body []byte, forSGLang bool) (*renderedRequest, error) {
	q := &renderedRequest{sampling: map[string]json.RawMessage{}, conversation: Conversation{Separator: separator(forSGLang)}}
	had := map[string]bool{}
	choice := ""
	s.ResetBytes(body)
	s.Next()
	err := s.Object(func(key []byte) error {
		name := string(key)
		s.Next()
		value, err := raw(s, body)
		if err != nil {
			return err
		}
		if had[name] {
			return fmt.Errorf("the member %q occurs twice", name)
		}
		had[name] = true
		if string(value) == "null" {
			return nil
		}
		switch name {
		case "messages":
			return json.Unmarshal(value, &q.conversation.Messages)
		case "tools":
			if compact(value) != "[]" {
				q.conversation.Tools = value
			}
		case "chat_template_kwargs":
			q.conversation.Variables = value
		case "reasoning_effort":
			q.conversation.Effort = value
		case "tool_choice":
			choice = compact(value)
		case "parallel_tool_calls":
			q.single = string(value) == "false"
		}
		return q.carry(name, value, forSGLang)
	})
	if err == nil {
		err = s.End()
	}
	if _, refused := err.(*refusal); err != nil && !refused { //nolint:errorlint // carry returns it as it is
		err = &refusal{http.StatusBadRequest, "bad_request", err.Error()}
	}
	if q.callable = q.conversation.Tools; choice == `"none"` {
		q.callable = nil
		if forSGLang {
			q.conversation.Tools = nil // SGLang's chat completions do the same (OpenAIServingChat._process_messages)
		}
	}
	return q, err
}

// carry applies renderedMembers to a member that is not null.
func (q *renderedRequest) carry(name string, value []byte, forSGLang bool) error {
	how, known := renderedMembers[name]
	if !known || how.only != nil && !slices.Contains(how.only, compact(value)) {
		what := "the member " + string(quoted(name))
		if known {
			what += " with this value"
		}
		return &refusal{
			http.StatusBadRequest, "unsupported_member",
			what + " cannot be sent with a prompt that the tap renders; remove it, or turn rendering off",
		}
	}
	to := how.vllm
	if forSGLang {
		to = how.sglang
	}
	if to == "" || name == "max_tokens" && q.sampling[to] != nil {
		return nil
	}
	q.sampling[to] = value
	return nil
}

func separator(forSGLang bool) string {
	if forSGLang {
		return " "
	}
	return "\n"
}

// compact returns JSON text without white space.
func compact(value []byte) string {
	var b bytes.Buffer
	_ = json.Compact(&b, value) // value has been scanned
	return b.String()
}
