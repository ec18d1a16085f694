package proxy

import (
	"math"

	"github.com/rollout-rl/rollout/tokenize"
)

// openai is the OpenAI API, as vLLM and SGLang serve it with token ids in the answer.
//
// Names and meanings: vllm-project/vllm, vllm/entrypoints/openai/chat_completion/protocol.py and
// completion/protocol.py (return_token_ids, prompt_token_ids, choices[].token_ids; in a stream
// prompt_token_ids comes with the first event, and each event has its own token_ids);
// sgl-project/sglang, python/sglang/srt/entrypoints/openai/protocol.py (return_token_ids,
// return_prompt_token_ids and return_meta_info; all appear in the choices, and some releases refuse
// them for streams) and utils/weight_versions.py (sglext).
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

// Both engines prefer max_completion_tokens to the older max_tokens.
var chatNames = names{
	temperature: "temperature", topP: "top_p", minP: "min_p", topK: "top_k", maxNewTokens: "max_completion_tokens",
	seed: "seed", stop: "stop", stopIDs: "stop_token_ids",
}

var completionNames = names{
	temperature: "temperature", topP: "top_p", minP: "min_p", topK: "top_k", maxNewTokens: "max_tokens",
	seed: "seed", stop: "stop", stopIDs: "stop_token_ids",
}

// asks returns nothing for a stream, because SGLang refuses these members there; vLLM accepts them.
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
			n := int32(1)
			if c := s.Next(); c-'0' > 9 {
				return s.Skip()
			}
			err = count(s, &n)
			q.several = q.several || n != 1
			return err
		case "prompt":
			return q.ids(s)
		case "messages":
			s.Next()
			at := s.Offset()
			err = s.Skip()
			q.grows = q.body[at:max(at, s.Offset()-1)] // without the closing bracket, which moves
			return err
		}
		return s.Skip()
	})
	q.sampling = []*object{&q.root}
	if q.path == chatPath {
		q.prompt, q.promptAt = nil, span{} // use the engine's prompt from the answer
	}
	return err
}

func (openai) answer(s *tokenize.Scanner, a *answer) error {
	a.begin()
	var seen [6]bool
	total := newAnswer(false)
	err := s.Object(func(key []byte) (err error) {
		switch string(key) {
		case "choices":
			if err := once(&seen[0]); err != nil || s.Next() != '[' {
				return skipUnless(s, err)
			}
			return s.Array(func(i int) error {
				if i > 0 {
					a.several = true
					return s.Skip()
				}
				return choice(s, a)
			})
		case "prompt_token_ids":
			if err := once(&seen[1]); err != nil || s.Next() != '[' {
				return skipUnless(s, err)
			}
			return a.prompted(s)
		case "usage":
			if err := once(&seen[2]); err != nil || s.Next() != '{' {
				return skipUnless(s, err)
			}
			return usage(s, total)
		case "metadata":
			if err := once(&seen[3]); err != nil || s.Next() != '{' {
				return skipUnless(s, err)
			}
			return versions(s, a)
		case "sglext":
			if err := once(&seen[4]); err != nil || s.Next() != '{' {
				return skipUnless(s, err)
			}
			return versions(s, a)
		case "error":
			if err := once(&seen[5]); err != nil {
				return err
			}
			a.failed = a.failed || s.Next() != 'n'
		}
		return s.Skip()
	})
	a.take(total)
	return err
}

func usage(s *tokenize.Scanner, a *answer) error {
	var seen [3]bool
	return s.Object(func(key []byte) (err error) {
		switch string(key) {
		case "prompt_tokens":
			if err := once(&seen[0]); err != nil {
				return err
			}
			return count(s, &a.promptTokens)
		case "completion_tokens":
			if err := once(&seen[1]); err != nil {
				return err
			}
			return count(s, &a.outputTokens)
		case "prompt_tokens_details":
			if err := once(&seen[2]); err != nil || s.Next() != '{' {
				return skipUnless(s, err)
			}
			var cached bool
			return s.Object(func(key []byte) error {
				if string(key) != "cached_tokens" {
					return s.Skip()
				}
				if err := once(&cached); err != nil {
					return err
				}
				return count(s, &a.cached)
			})
		}
		return s.Skip()
	})
}

// versions parses SGLang's weight versions outside of meta_info.
func versions(s *tokenize.Scanner, a *answer) error {
	var seen [2]bool
	return s.Object(func(key []byte) (err error) {
		switch string(key) {
		case "weight_version":
			if err := once(&seen[0]); err != nil {
				return err
			}
			return a.versioned(s)
		case "weight_versions":
			if err := once(&seen[1]); err != nil {
				return err
			}
			return a.spanned(s)
		}
		return s.Skip()
	})
}

func choice(s *tokenize.Scanner, a *answer) error {
	var seen [8]bool
	var said generation
	meta := newAnswer(false)
	meta.tray = a.tray
	ids, logprobs := len(a.output), len(a.logprobs)
	err := s.Object(func(key []byte) (err error) {
		switch string(key) {
		case "index":
			if err := once(&seen[0]); err != nil {
				return err
			}
			n, err := id(s)
			a.several = a.several || n > 0
			return err
		case "token_ids":
			if err := once(&seen[1]); err != nil || s.Next() != '[' {
				return skipUnless(s, err)
			}
			list, err := a.sampled(s)
			if a.streamed {
				list = append(notNil(a.output), list...)
			}
			a.output = list
			return err
		case "prompt_token_ids":
			if err := once(&seen[2]); err != nil || s.Next() != '[' {
				return skipUnless(s, err)
			}
			return a.prompted(s)
		case "finish_reason":
			if err := once(&seen[3]); err != nil || s.Next() == 'n' {
				return skipUnless(s, err)
			}
			a.finish, err = word(s)
			return err
		case "stop_reason": // vLLM's name
			if err := once(&seen[4]); err != nil || s.Next() == 'n' {
				return skipUnless(s, err)
			}
			a.matched, err = id(s)
			return err
		case "matched_stop": // SGLang's name
			if err := once(&seen[5]); err != nil || s.Next() == 'n' {
				return skipUnless(s, err)
			}
			a.matched, err = id(s)
			return err
		case "logprobs":
			if err := once(&seen[6]); err != nil || s.Next() != '{' {
				return skipUnless(s, err)
			}
			return choiceLogprobs(s, a)
		case "meta_info":
			if err := once(&seen[7]); err != nil || s.Next() != '{' {
				return skipUnless(s, err)
			}
			return metaInfo(s, meta, &said)
		}
		return s.Skip()
	})
	if err != nil {
		return err
	}
	a.take(meta)
	a.bare = true
	a.uneven = a.uneven || len(a.output)-ids != len(a.logprobs)-logprobs
	if said.logIDs != nil && !a.streamed { // meta_info has the ids of the log-probabilities
		a.bare, a.uneven, a.logIDs, a.logprobs = false, false, said.logIDs, said.logprobs
		if a.output == nil && len(said.logIDs) == int(meta.outputTokens) {
			a.output = said.logIDs
		}
	}
	return nil
}

// choiceLogprobs parses the logprobs of a chat or completion. Values other than numbers become NaN.
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
	var seen [2]bool
	return s.Object(func(key []byte) error {
		switch string(key) {
		case "content":
			if err := once(&seen[0]); err != nil || s.Next() != '[' {
				return skipUnless(s, err)
			}
			return s.Array(func(int) error {
				has := false
				err := s.Object(func(key []byte) error {
					if string(key) != "logprob" {
						return s.Skip()
					}
					if err := once(&has); err != nil {
						return err
					}
					return one()
				})
				if err == nil && !has {
					a.logprobs = append(a.logprobs, float32(math.NaN()))
				}
				return err
			})
		case "token_logprobs":
			if err := once(&seen[1]); err != nil || s.Next() != '[' {
				return skipUnless(s, err)
			}
			return s.Array(func(int) error { return one() })
		}
		return s.Skip()
	})
}
