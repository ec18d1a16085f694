package proxy

import (
	"math"

	"github.com/rollout-rl/rollout/tokenize"
)

// openai is the dialect for the OpenAI API of vLLM and SGLang, with token ids in the answer.
//
// Source for vLLM: vllm-project/vllm, vllm/entrypoints/openai/chat_completion/protocol.py and
// completion/protocol.py (return_token_ids, prompt_token_ids, choices[].token_ids). In a stream,
// the first event contains prompt_token_ids, and each event contains its own token_ids. Source for
// SGLang: sgl-project/sglang, python/sglang/srt/entrypoints/openai/protocol.py (return_token_ids,
// return_prompt_token_ids and return_meta_info) and utils/weight_versions.py (sglext). SGLang
// returns the requested values in the choices. Some versions of SGLang refuse these members in
// streamed requests. Newer versions have headers that make them return the ids in sglext.
type openai struct{}

func (openai) name() string { return "openai" }

const (
	chatPath       = "/v1/chat/completions"
	completionPath = "/v1/completions"
)

func (openai) serves(path string) bool { return path == chatPath || path == completionPath }

// If a request has both max_completion_tokens and the older max_tokens, both engines use
// max_completion_tokens.
var chatNames = names{
	temperature: "temperature", topP: "top_p", minP: "min_p", topK: "top_k", maxNewTokens: "max_completion_tokens",
	seed: "seed", stop: "stop", stopIDs: "stop_token_ids",
}

var completionNames = names{
	temperature: "temperature", topP: "top_p", minP: "min_p", topK: "top_k", maxNewTokens: "max_tokens",
	seed: "seed", stop: "stop", stopIDs: "stop_token_ids",
}

// asks returns nil for a stream. vLLM would accept these members in a streamed request, but some
// versions of SGLang refuse them.
func (openai) asks(q *request) []ask {
	switch {
	case q.streamed:
		return nil
	case q.path == chatPath:
		return []ask{{"return_token_ids", "true"}, {"return_prompt_token_ids", "true"}, {"return_meta_info", "true"}, {"logprobs", "true"}}
	}
	return []ask{{"return_token_ids", "true"}, {"logprobs", "0"}}
}

func (openai) request(s *tokenize.Scanner, q *request) (err error) {
	q.keys = &completionNames
	if q.path == chatPath {
		q.keys = &chatNames
	}
	wanted := func(key []byte) bool {
		switch string(key) {
		case "stream", "n", "best_of", "prompt", "messages", "max_tokens", "logprobs", "return_token_ids", "return_prompt_token_ids", "return_meta_info", "return_routed_experts", "return_sampling_mask":
			return true
		}
		return q.keys.has(key)
	}
	q.root, err = q.object(s, wanted, func(key string) (err error) {
		switch key {
		case "stream":
			q.streamed, err = q.truth(s)
			return err
		case "n", "best_of":
			return q.outputs(s)
		case "prompt":
			return q.ids(s)
		case "messages":
			s.Next()
			at := s.Offset()
			err = s.Skip()
			q.grows = q.body[at:max(at, s.Offset()-1)] // without the closing bracket, because the next call's messages continue here
			return err
		}
		return s.Skip()
	})
	q.sampling = []*object{&q.root}
	if q.path == chatPath {
		q.prompt, q.promptAt = nil, span{} // ignore a prompt in the request; the answer contains the engine's prompt
	}
	return err
}

func (openai) answer(s *tokenize.Scanner, a *answer) error {
	r := openaiReader{s: s, a: a}
	r.begin()
	err := s.Object(r.member)
	r.end()
	return err
}

func usage(s *tokenize.Scanner, a *answer) error {
	return parseFields(s,
		field{"prompt_tokens", anyValue, func() error { return count(s, &a.promptTokens) }},
		field{"completion_tokens", anyValue, func() error { return count(s, &a.outputTokens) }},
		field{"prompt_tokens_details", '{', func() error {
			return parseFields(s, field{"cached_tokens", anyValue, func() error { return count(s, &a.cached) }})
		}},
	)
}

// sampledAtOnce parses all sampled ids of a stream: a list of ids for each choice, or a list of ids.
func sampledAtOnce(s *tokenize.Scanner, a *answer) error {
	out := []int32{}
	err := s.Array(func(i int) error {
		switch {
		case s.Next() != '[':
			n, err := id(s)
			out = append(out, n)
			return err
		case i > 0:
			a.several = true
			return s.Skip()
		}
		list, err := a.sampled(s)
		out = append(out, list...)
		return err
	})
	a.output, a.atOnce = out, true
	return err
}

// versions parses SGLang's weight versions in an object other than meta_info.
func versions(s *tokenize.Scanner, a *answer) error {
	return parseFields(s,
		field{"weight_version", anyValue, func() error { return a.versioned(s) }},
		field{"weight_versions", anyValue, func() error { return a.spanned(s) }},
	)
}

// choiceLogprobs parses the "logprobs" member of a choice in a chat or text completion. A value
// that is not a number becomes NaN.
func choiceLogprobs(s *tokenize.Scanner, a *answer) (err error) {
	one := func() error {
		v := float32(math.NaN())
		if c := s.Next(); c == '-' || c-'0' <= 9 {
			v, err = s.Float32()
		} else {
			err = s.Skip()
		}
		a.logprobs = append(a.logprobs, v)
		return err
	}
	return parseFields(s,
		field{"content", '[', func() error {
			return s.Array(func(int) error {
				n := len(a.logprobs)
				err := parseFields(s, field{"logprob", anyValue, one})
				if err == nil && len(a.logprobs) == n {
					a.logprobs = append(a.logprobs, float32(math.NaN()))
				}
				return err
			})
		}},
		field{"token_logprobs", '[', func() error {
			return s.Array(func(int) error { return one() })
		}},
	)
}
