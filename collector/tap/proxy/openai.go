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

func (openai) keys(path string) *names {
	if path == chatPath {
		return &chatNames
	}
	return &completionNames
}

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

func (d openai) request(s *tokenize.Scanner, q *request) (err error) {
	keys := d.keys(q.path)
	wanted := func(key []byte) bool {
		switch string(key) {
		case "stream", "n", "best_of", "prompt", "messages", "max_tokens", "logprobs", "return_token_ids", "return_prompt_token_ids", "return_meta_info":
			return true
		}
		return keys.has(key)
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
	a.begin()
	total := newAnswer(false)
	err := parseFields(s,
		field{"choices", '[', func() error {
			return s.Array(func(i int) error {
				if i > 0 {
					a.several = true
					return s.Skip()
				}
				return choice(s, a)
			})
		}},
		field{"prompt_token_ids", '[', func() error { return a.prompted(s) }},
		field{"usage", '{', func() error { return usage(s, total) }},
		field{"metadata", '{', func() error { return versions(s, a) }},
		field{"sglext", '{', func() error { return extension(s, a) }},
		field{"error", anyValue, func() error { return a.errored(s) }},
	)
	a.merge(total)
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

// extension parses SGLang's sglext. A stream contains the ids once, in an event near the end. The
// log-probabilities are in the other events.
func extension(s *tokenize.Scanner, a *answer) error {
	return parseFields(s,
		field{"weight_version", anyValue, func() error { return a.versioned(s) }},
		field{"weight_versions", anyValue, func() error { return a.spanned(s) }},
		field{"input_ids", '[', func() error { return a.prompted(s) }},
		field{"output_ids", '[', func() error { return sampledAtOnce(s, a) }},
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

func choice(s *tokenize.Scanner, a *answer) error {
	var said generation
	meta := newAnswer(false)
	meta.tray = a.tray
	ids, logprobs := len(a.output), len(a.logprobs)
	matched := func() (err error) {
		a.matched, err = id(s)
		return err
	}
	sampled := func() error {
		list, err := a.sampled(s)
		if a.streamed {
			list = append(notNil(a.output), list...)
		}
		a.output = list
		return err
	}
	err := parseFields(s,
		field{"index", anyValue, func() error {
			n, err := id(s)
			a.several = a.several || n > 0
			return err
		}},
		field{"token_ids", '[', sampled},
		field{"response_token_ids", '[', sampled}, // newer versions of SGLang
		field{"prompt_token_ids", '[', func() error { return a.prompted(s) }},
		field{"finish_reason", notNull, func() (err error) {
			a.finish, err = word(s)
			return err
		}},
		field{"stop_reason", notNull, matched},  // vLLM's name
		field{"matched_stop", notNull, matched}, // SGLang's name
		field{"logprobs", '{', func() error { return choiceLogprobs(s, a) }},
		field{"meta_info", '{', func() error { return metaInfo(s, meta, &said) }},
	)
	if err != nil {
		return err
	}
	a.merge(meta)
	a.bare = true
	a.uneven = a.uneven || len(a.output)-ids != len(a.logprobs)-logprobs
	if said.logIDs != nil && !a.streamed { // meta_info contains the ids to which the log-probabilities belong
		a.bare, a.uneven, a.logIDs, a.logprobs = false, false, said.logIDs, said.logprobs
		if a.output == nil && len(said.logIDs) == int(meta.outputTokens) {
			a.output = said.logIDs
		}
	}
	return nil
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
