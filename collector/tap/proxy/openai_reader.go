package proxy

import "github.com/rollout-rl/rollout/tokenize"

// An openaiReader parses one document of an answer. Its caller walks through the objects of the document
// and calls a method for each member: begin, then member for the members of the document's object, then
// end. member parses everything within a value. A caller that has to see the members within the choices
// or within sglext calls enters instead, and then the methods for these members. If a is nil, all values
// are skipped.
type openaiReader struct {
	s *tokenize.Scanner
	a *answer

	total         answer // of the document
	meta          answer // of the choice
	said          generation
	ids, logprobs int  // numbers of values before the choice
	other         bool // the choice is not the first one

	inDocument, inChoice, inExtension seen
}

var (
	documentMembers = knownMembers{
		{"choices", '['}, {"prompt_token_ids", '['}, {"usage", '{'}, {"metadata", '{'}, {"sglext", '{'}, {"error", anyValue},
	}
	choiceMembers = knownMembers{
		{"index", anyValue},
		{"finish_reason", notNull},
		{"stop_reason", notNull},
		{"matched_stop", notNull},
		{"meta_info", '{'},
		{"token_ids", '['},
		{"response_token_ids", '['},
		{"prompt_token_ids", '['},
		{"logprobs", '{'},
		{"routed_experts", '"'},
		{"sampling_mask", '['},
	}
	extensionMembers = knownMembers{
		{"weight_version", anyValue},
		{"weight_versions", anyValue},
		{"input_ids", '['},
		{"output_ids", '['},
		{"routed_experts", '"'},
	}
)

func (r *openaiReader) begin() {
	if r.a != nil {
		r.a.begin()
		r.total = *newAnswer(false)
	}
}

func (r *openaiReader) end() {
	if r.a != nil {
		r.a.merge(&r.total)
	}
}

// enters reports whether the caller must walk through the value of a member of the document's object. If
// not, the value has been skipped.
func (r *openaiReader) enters(key []byte) (bool, error) {
	had := &r.inDocument
	if r.a == nil {
		had = nil
	}
	return documentMembers.accept(r.s, key, had)
}

// member parses a member of the document's object.
func (r *openaiReader) member(key []byte) error {
	s, a := r.s, r.a
	if a == nil {
		return s.Skip()
	}
	if ok, err := r.enters(key); !ok {
		return err
	}
	switch string(key) {
	case "choices":
		return s.Array(func(i int) error {
			if r.beginChoice(i); r.other {
				return s.Skip()
			}
			err := s.Object(r.choice)
			r.endChoice()
			return err
		})
	case "prompt_token_ids":
		return a.prompted(s)
	case "usage":
		return usage(s, &r.total)
	case "metadata":
		return versions(s, a)
	case "sglext":
		return s.Object(r.extension)
	}
	return a.errored(s)
}

// extension parses a member of SGLang's sglext. A stream contains the ids once, in an event near the end.
// The log-probabilities are in the other events.
func (r *openaiReader) extension(key []byte) error {
	s, a := r.s, r.a
	if a == nil {
		return s.Skip()
	}
	if ok, err := extensionMembers.accept(s, key, &r.inExtension); !ok {
		return err
	}
	switch string(key) {
	case "weight_version":
		return a.versioned(s)
	case "weight_versions":
		return a.spanned(s)
	case "input_ids":
		return a.prompted(s)
	case "routed_experts":
		return a.routed(s)
	}
	return sampledAtOnce(s, a)
}

// beginChoice begins the choice at index i of the list.
func (r *openaiReader) beginChoice(i int) {
	a := r.a
	if r.other = i > 0; a == nil {
		return
	}
	a.several = a.several || r.other
	r.inChoice, r.said, r.meta = 0, generation{}, *newAnswer(false)
	r.meta.tray, r.meta.inside = a.tray, a.inside
	r.ids, r.logprobs = len(a.output), len(a.logprobs)
}

// choice parses a member of a choice.
func (r *openaiReader) choice(key []byte) (err error) {
	s, a := r.s, r.a
	if a == nil || r.other {
		return s.Skip()
	}
	if ok, err := choiceMembers.accept(s, key, &r.inChoice); !ok {
		return err
	}
	switch string(key) {
	case "index":
		n, err := id(s)
		a.several = a.several || n > 0
		return err
	case "token_ids", "response_token_ids": // newer versions of SGLang use the second name
		list, err := a.sampled(s)
		if a.streamed {
			list = append(notNil(a.output), list...)
		}
		a.output = list
		return err
	case "prompt_token_ids":
		return a.prompted(s)
	case "finish_reason":
		a.finish, err = word(s)
		return err
	case "stop_reason", "matched_stop": // vLLM's name, and SGLang's name
		return a.stopped(s)
	case "logprobs":
		return choiceLogprobs(s, a)
	case "routed_experts":
		return a.routed(s)
	case "sampling_mask":
		return a.masks(s)
	}
	return metaInfo(s, &r.meta, &r.said)
}

func (r *openaiReader) endChoice() {
	a := r.a
	if a == nil || r.other {
		return
	}
	a.merge(&r.meta)
	a.bare = true
	a.uneven = a.uneven || len(a.output)-r.ids != len(a.logprobs)-r.logprobs
	if r.said.logIDs != nil && !a.streamed { // meta_info contains the ids to which the log-probabilities belong
		a.bare, a.uneven, a.logIDs, a.logprobs = false, false, r.said.logIDs, r.said.logprobs
		if a.output == nil && len(r.said.logIDs) == int(r.meta.outputTokens) {
			a.output = r.said.logIDs
		}
	}
}
