package proxy

import (
	"bytes"
	"slices"

	"github.com/rollout-rl/rollout/tokenize"
)

// A view turns the documents of an engine's answer into the documents that the client would have
// received from the engine without the tap. It removes the members for which only the tap asked,
// and changes the name of the model to the name that the client used. It keeps all other bytes. A
// view also collects the assistant message.
//
// A document is the whole answer or the data of one event of a stream.
type view struct {
	streamed bool
	model    []byte // JSON text; nil: the client named no model
	// These fields are true if the client asked for the members.
	usage, logprobs, tokenIDs, promptIDs, metaInfo, extension bool
	// These fields are true if only the tap asked for the values from inside the call.
	hideExperts, hideMasks bool
	message                *message // nil if the message is not collected
	saved                  message  // the message before the current document
	// parts collects the parts of a whole answer that becomes a stream. For any other answer, it is nil.
	parts *document

	// These fields describe the current document.
	body  []byte
	edits []edit
	// bare is true if the list of choices is empty. cut is true if a member with a value was
	// removed from the document's object. full is true if it still has a member that such an event
	// exists for.
	bare, cut, full bool
}

// viewOf returns the view of the client that sent q.
func viewOf(q *chatRequest, extension bool) *view {
	v := &view{
		usage: q.usage, logprobs: q.has("logprobs"), tokenIDs: q.has("return_token_ids"), metaInfo: q.has("return_meta_info"), extension: extension,
	}
	if name := q.root.value(q.body, "model"); len(name) > 0 && name[0] == '"' {
		v.model = name
	}
	v.promptIDs = v.tokenIDs || q.has("return_prompt_token_ids")
	if !q.several {
		v.message = &message{}
	}
	return v
}

// hide makes v remove the values from inside the call that the tap requests, unless the client
// requests them too.
func (v *view) hide(asked tokenize.Inside, q *chatRequest) {
	v.hideExperts = asked.Experts != (tokenize.ExpertShape{}) && !q.has("return_routed_experts")
	v.hideMasks = asked.SamplingMask && !q.has("return_sampling_mask")
}

// name returns the name of the model that the client used, or "".
func (v *view) name() string { return unquoted(v.model) }

// document finds the changes to a document and stores them in v.edits. It returns true if nothing
// remains that the client asked for, so that the event must be dropped. v.edits is valid until the
// next call, and empty after an error. If a is not nil, document also parses the ids.
func (v *view) document(s *tokenize.Scanner, body []byte, a *answer) (drop bool, err error) {
	v.body, v.edits = body, v.edits[:0]
	v.bare, v.cut, v.full = false, false, false
	v.save()
	s.ResetBytes(body)
	r := openaiReader{s: s, a: a}
	r.begin()
	_, err = v.object(s, func(key []byte) (keep bool, err error) { return v.member(&r, key) })
	if err == nil {
		err = s.End()
	}
	if err != nil {
		v.edits = v.edits[:0]
		v.restore()
		return false, err
	}
	r.end()
	if v.parts != nil && v.parts.members["model"] != nil && v.model != nil {
		v.parts.members["model"] = v.model
	}
	return v.streamed && v.bare && v.cut && !v.full, nil
}

// member decides about a member of the document's object.
func (v *view) member(r *openaiReader, key []byte) (keep bool, err error) {
	s := r.s
	keep = true
	var parts members
	if v.parts != nil {
		parts = v.parts.members
	}
	switch string(key) {
	case "choices":
		return true, v.choices(r, key)
	case "model":
		return true, v.replace(s, v.model, func() error { return parts.keep(s, v.body, key, r.member) })
	case "error":
		v.full = true
	case "usage":
		keep = v.optional(s, v.usage || !v.streamed)
	case "prompt_token_ids":
		keep = v.optional(s, v.promptIDs)
	case "sglext":
		return v.sglext(r, key)
	}
	return keep, parts.keep(s, v.body, key, r.member)
}

// save keeps the message, so that restore can remove what a document adds to it.
func (v *view) save() {
	if v.message != nil {
		calls := append(v.saved.calls[:0], v.message.calls...)
		v.saved = *v.message
		v.saved.calls = calls
	}
}

func (v *view) restore() {
	if v.message != nil {
		*v.message = v.saved
		v.message.calls = slices.Clone(v.saved.calls)
	}
	if v.parts != nil {
		*v.parts = *newDocument()
	}
}

// optional decides about a member of the document's object, which is kept only if the client asked for
// it.
func (v *view) optional(s *tokenize.Scanner, asked bool) (keep bool) {
	if s.Next() != 'n' {
		v.full, v.cut = v.full || asked, v.cut || !asked
	}
	return asked
}

// replace replaces a value, unless text is nil. It calls read to parse the value.
func (v *view) replace(s *tokenize.Scanner, text []byte, read func() error) error {
	s.Next()
	at := int(s.Offset())
	err := read()
	if text != nil {
		v.edits = append(v.edits, edit{span{at, int(s.Offset())}, text})
	}
	return err
}

func (v *view) choices(r *openaiReader, key []byte) error {
	s := r.s
	if ok, err := r.enters(key); !ok {
		return err
	}
	v.bare = true
	return s.Array(func(i int) error {
		v.bare = false
		if r.beginChoice(i); s.Next() != '{' && (r.a == nil || r.other) {
			return s.Skip()
		}
		err := v.choice(r)
		r.endChoice()
		return err
	})
}

var null = []byte("null")

func (v *view) choice(r *openaiReader) error {
	s := r.s
	message := v.message
	var parts members
	if v.parts != nil {
		part := v.parts.choice()
		message, parts = &part.message, part.members
		if v.message != nil && !r.other {
			v.message = message
		}
	}
	_, err := v.object(s, func(key []byte) (keep bool, err error) {
		keep = true
		switch string(key) {
		case "delta", "message":
			if message == nil || s.Next() != '{' {
				return true, s.Skip()
			}
			return true, message.read(s, v.body, v.streamed)
		case "logprobs":
			if !v.logprobs && s.Next() != 'n' {
				return true, v.replace(s, null, func() error { return r.choice(key) })
			}
		case "token_ids", "response_token_ids":
			keep = v.tokenIDs
		case "prompt_token_ids":
			keep = v.promptIDs
		case "meta_info":
			keep = v.metaInfo
		case "routed_experts":
			keep = !v.hideExperts
		case "sampling_mask":
			keep = !v.hideMasks
		}
		return keep, parts.keep(s, v.body, key, r.choice)
	})
	return err
}

// sglext removes the ids from SGLang's extension. An extension that contains nothing else is
// removed.
func (v *view) sglext(r *openaiReader, key []byte) (keep bool, err error) {
	s := r.s
	if v.extension || s.Next() != '{' {
		return v.optional(s, true), r.member(key)
	}
	if ok, err := r.enters(key); !ok {
		return true, err
	}
	kept, err := v.object(s, func(key []byte) (keep bool, err error) {
		switch string(key) {
		case "input_ids", "output_ids":
			v.cut = true
			return false, r.extension(key)
		case "routed_experts":
			if v.hideExperts {
				v.cut = true
				return false, r.extension(key)
			}
		}
		keep = s.Next() != 'n'
		v.full = v.full || keep
		return keep, r.extension(key)
	})
	return kept > 0, err
}

// object parses an object. It calls the function member for each member. The function reads the
// value and reports whether the member is kept. object adds the edits that remove the other
// members, and returns the number of members that are kept.
func (v *view) object(s *tokenize.Scanner, member func(key []byte) (keep bool, err error)) (kept int, err error) {
	s.Next()
	at := int(s.Offset()) + 1 // the end of the previous member
	removed := false
	err = s.Object(func(key []byte) error {
		edits := len(v.edits)
		keep, err := member(key)
		if err != nil {
			return err
		}
		end := int(s.Offset())
		switch {
		case !keep: // with the comma before the member
			v.edits = append(v.edits[:edits], edit{span: span{at, end}})
			removed = true
		case kept == 0 && removed: // the comma before the first member that is kept
			comma := at + bytes.IndexByte(v.body[at:end], ',')
			v.edits = append(v.edits, edit{span: span{comma, comma + 1}})
			kept++
		default:
			kept++
		}
		at = end
		return nil
	})
	return kept, err
}

// append appends the document with its changes to dst.
func (v *view) append(dst []byte) []byte { return appendEdited(dst, v.body, v.edits) }
