package proxy

import (
	"slices"

	"github.com/rollout-rl/rollout/tokenize"
)

// sglang is the dialect for SGLang's native API.
//
// Source: sgl-project/sglang, python/sglang/srt/managers/io_struct.py (GenerateReqInput),
// sampling/sampling_params.py (SamplingParams), managers/tokenizer_manager.py (whole and streamed
// answers), utils/weight_versions.py.
//
// If a stop token ended the output, it is the last id in output_ids. Each event in a stream repeats
// the earlier tokens, unless --incremental-streaming-output is set. Events can repeat only the ids
// or only the log-probabilities (see parts).
type sglang struct{}

func (sglang) name() string { return "sglang" }

func (sglang) serves(path string) bool { return path == "/generate" }

var sglangNames = names{
	temperature: "temperature", topP: "top_p", minP: "min_p", topK: "top_k", maxNewTokens: "max_new_tokens",
	seed: "sampling_seed", stop: "stop", stopIDs: "stop_token_ids",
}

func (sglang) asks(*request) []ask { return []ask{{"return_logprob", "true"}} }

func (sglang) request(s *tokenize.Scanner, q *request) (err error) {
	q.keys = &sglangNames
	setting := func(key []byte) bool { return string(key) == "n" || q.keys.has(key) }
	parameters := func() error {
		o, err := q.object(s, setting, nil)
		q.sampling = append(q.sampling, &o)
		if n := o.value(q.body, "n"); n != nil && string(n) != "1" && string(n) != "null" {
			q.several = true
		}
		return err
	}
	wanted := func(key []byte) bool {
		switch string(key) {
		case "input_ids", "sampling_params", "stream", "return_logprob", "text", "input_embeds", "image_data", "video_data", "audio_data",
			"session_params", "positional_embed_overrides", "return_routed_experts", "return_sampling_mask":
			return true
		}
		return false
	}
	q.root, err = q.object(s, wanted, func(key string) (err error) {
		c := s.Next()
		switch key {
		case "input_ids":
			return q.ids(s)
		case "stream":
			q.streamed, err = q.truth(s)
			return err
		case "return_logprob", "return_routed_experts", "return_sampling_mask":
			return s.Skip()
		case "text":
			q.several = q.several || c == '['
			return s.Skip()
		case "sampling_params":
			switch c {
			case '{':
				return parameters()
			case '[':
				q.several = true
				return s.Array(func(int) error { return parameters() })
			}
			q.samplingAt.from = int(s.Offset())
			err = s.Skip()
			q.samplingAt.to = int(s.Offset())
			return err
		}
		q.foreign = q.foreign || c != 'n'
		return s.Skip()
	})
	return err
}

func (sglang) answer(s *tokenize.Scanner, a *answer) error {
	if s.Next() == '[' {
		a.several = true
		return s.Skip()
	}
	a.begin()
	var said generation
	err := parseFields(s,
		field{"output_ids", notNull, func() (err error) {
			said.output, err = a.sampled(s)
			return err
		}},
		field{"prompt_token_ids", '[', func() error { return a.prompted(s) }},
		field{"meta_info", '{', func() error { return metaInfo(s, a, &said) }},
		field{"error", anyValue, func() error { return a.errored(s) }},
	)
	if err == nil {
		a.parts.add(&said, a)
	}
	return err
}

// metaInfo parses meta_info objects from SGLang's native API and from its chat completions API.
func metaInfo(s *tokenize.Scanner, a *answer, said *generation) error {
	return parseFields(s,
		field{"output_token_logprobs", '[', func() (err error) {
			t := a.tray
			said.logprobs, said.logIDs, err = s.Logprobs(t.logprobs[:0], t.logIDs[:0])
			t.logprobs, t.logIDs = said.logprobs[:0], said.logIDs[:0]
			return err
		}},
		field{"finish_reason", anyValue, func() error { return finishReason(s, a) }},
		field{"weight_version", anyValue, func() error { return a.versioned(s) }},
		field{"weight_versions", anyValue, func() error { return a.spanned(s) }},
		field{"prompt_tokens", anyValue, func() error { return count(s, &a.promptTokens) }},
		field{"completion_tokens", anyValue, func() error { return count(s, &a.outputTokens) }},
		field{"cached_tokens", anyValue, func() error { return count(s, &a.cached) }},
		field{"routed_experts", '"', func() error { return a.routed(s) }},
		field{"output_token_sampling_mask", '[', func() error { return a.masks(s) }},
	)
}

func finishReason(s *tokenize.Scanner, a *answer) (err error) {
	if s.Next() != '{' {
		a.finish, err = word(s)
		return err
	}
	return parseFields(s,
		field{"type", anyValue, func() (err error) {
			a.finish, err = word(s)
			return err
		}},
		field{"matched", anyValue, func() error { return a.stopped(s) }},
	)
}

// A generation contains the sampled tokens in one document. It is valid until the next document
// overwrites the memory of the tray.
type generation struct {
	output   []int32
	logprobs []float32
	logIDs   []int32
}

// parts joins the events of a stream. An event contains either all tokens sampled so far or only
// the new tokens. The token count in the event shows which is the case. Log-probabilities are
// joined in the same way, but separately.
type parts struct {
	// If events repeat earlier tokens, the lists come from the last event, otherwise from all
	// events.
	output   []int32
	logprobs []float32
	logIDs   []int32 // the ids to which logprobs belong; nil if these are the first ids in output
	// repeats is true if events repeat earlier ids. logRepeats is true if events repeat earlier
	// log-probabilities.
	repeats, logRepeats bool
}

func (p *parts) add(said *generation, a *answer) {
	if !a.streamed {
		a.output, a.logprobs, a.logIDs = said.output, said.logprobs, said.logIDs
		return
	}
	total := int(a.outputTokens)
	if p.repeats = p.repeats || len(p.output)+len(said.output) > total; p.repeats {
		if p.logIDs == nil && !begins(said.output, p.output[:len(p.logprobs)]) {
			p.part()
		}
		p.output = p.output[:0]
	}
	if p.logRepeats = p.logRepeats || len(p.logprobs)+len(said.logIDs) > total; p.logRepeats {
		p.logprobs, p.logIDs = p.logprobs[:0], nil
	}
	p.output = extended(p.output, said.output)
	if p.logIDs == nil && !begins(p.output[len(p.logprobs):], said.logIDs) {
		p.part()
	}
	if p.logIDs != nil {
		p.logIDs = append(p.logIDs, said.logIDs...)
	}
	p.logprobs = extended(p.logprobs, said.logprobs)
	a.output, a.logIDs, a.logprobs = nil, nil, nil
	if len(p.output) == total {
		a.output = p.output
		if said.output != nil {
			a.output = notNil(p.output)
		}
	}
	if len(p.logprobs) == total {
		a.logIDs, a.logprobs = p.logIDs, p.logprobs
		if p.logIDs == nil {
			a.logIDs = p.output[:total]
		}
	}
}

// part copies the first ids in output to logIDs, because the two lists are about to differ.
func (p *parts) part() {
	p.logIDs = append(make([]int32, 0, len(p.output)), p.output[:len(p.logprobs)]...)
}

func begins(list, ids []int32) bool {
	return len(list) >= len(ids) && slices.Equal(list[:len(ids)], ids)
}

// extended appends the new values to the list. It leaves less spare capacity than append does,
// because many streams are open at the same time and each stays open for a long time.
func extended[T any](list, said []T) []T {
	if n := len(list) + len(said); n > cap(list) {
		list = append(make([]T, 0, n+n/8+spareTokens), list...)
	}
	return append(list, said...)
}

const spareTokens = 64

func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
