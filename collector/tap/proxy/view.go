package proxy

import (
	"bytes"

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
	message                                                   *message // nil if the message is not collected
	sound                                                     bool     // the reader has parsed the document without an error

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

// name returns the name of the model that the client used, or "".
func (v *view) name() string { return unquoted(v.model) }

// document finds the changes to a document and stores them in v.edits. It returns true if nothing
// remains that the client asked for, so that the event must be dropped. v.edits is valid until the
// next call, and empty after an error.
func (v *view) document(s *tokenize.Scanner, body []byte) (drop bool, err error) {
	v.body, v.edits = body, v.edits[:0]
	v.bare, v.cut, v.full = false, false, false
	s.ResetBytes(body)
	_, err = v.object(s, func(key []byte) (keep bool, err error) {
		switch string(key) {
		case "choices":
			return true, v.choices(s)
		case "model":
			return true, v.replace(s, v.model)
		case "error":
			v.full = true
		case "usage":
			return v.optional(s, v.usage || !v.streamed)
		case "prompt_token_ids":
			if v.sound && s.Next() == '[' {
				v.full, v.cut = v.full || v.promptIDs, v.cut || !v.promptIDs
				return v.promptIDs, skipIDs(s)
			}
			return v.optional(s, v.promptIDs)
		case "sglext":
			return v.sglext(s)
		}
		return true, s.Skip()
	})
	if err == nil {
		err = s.End()
	}
	if err != nil {
		v.edits = v.edits[:0]
		return false, err
	}
	return v.streamed && v.bare && v.cut && !v.full, nil
}

// optional skips a member of the document's object, which is kept only if the client asked for it.
func (v *view) optional(s *tokenize.Scanner, asked bool) (keep bool, err error) {
	if s.Next() != 'n' {
		v.full, v.cut = v.full || asked, v.cut || !asked
	}
	return asked, s.Skip()
}

// skipIDs skips a list of ids that is known to be valid. It is faster than Scanner.Skip.
func skipIDs(s *tokenize.Scanner) error {
	d := newDesk()
	defer d.free()
	ids, err := s.IDs(d.ids[:0])
	d.ids = ids
	return err
}

// replace replaces a value, unless text is nil.
func (v *view) replace(s *tokenize.Scanner, text []byte) error {
	s.Next()
	at := int(s.Offset())
	err := s.Skip()
	if text != nil {
		v.edits = append(v.edits, edit{span{at, int(s.Offset())}, text})
	}
	return err
}

func (v *view) choices(s *tokenize.Scanner) error {
	if s.Next() != '[' {
		return s.Skip()
	}
	v.bare = true
	return s.Array(func(int) error {
		v.bare = false
		if s.Next() != '{' {
			return s.Skip()
		}
		return v.choice(s)
	})
}

var null = []byte("null")

func (v *view) choice(s *tokenize.Scanner) error {
	_, err := v.object(s, func(key []byte) (keep bool, err error) {
		switch string(key) {
		case "delta", "message":
			if v.message == nil || s.Next() != '{' {
				return true, s.Skip()
			}
			return true, v.message.read(s, v.body, v.streamed)
		case "logprobs":
			if v.logprobs || s.Next() == 'n' {
				return true, s.Skip()
			}
			return true, v.replace(s, null)
		case "token_ids", "response_token_ids":
			return v.tokenIDs, s.Skip()
		case "prompt_token_ids":
			return v.promptIDs, s.Skip()
		case "meta_info":
			return v.metaInfo, s.Skip()
		}
		return true, s.Skip()
	})
	return err
}

// sglext removes the ids from SGLang's extension. An extension that contains nothing else is
// removed.
func (v *view) sglext(s *tokenize.Scanner) (keep bool, err error) {
	if v.extension || s.Next() != '{' {
		return v.optional(s, true)
	}
	kept, err := v.object(s, func(key []byte) (bool, error) {
		switch string(key) {
		case "input_ids", "output_ids":
			v.cut = true
			return false, s.Skip()
		}
		empty := s.Next() == 'n'
		v.full = v.full || !empty
		return !empty, s.Skip()
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
