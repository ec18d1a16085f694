package proxy

import (
	"strconv"

	"github.com/rollout-rl/rollout/tokenize"
)

// A document is a whole answer whose parts become the events of a stream. All values are JSON.
type document struct {
	id, created, model, fingerprint []byte
	choices                         []choiceParts
	usage                           []byte
}

type choiceParts struct {
	index, logprobs                       []byte
	content, thoughts, reasoning, refusal []byte
	calls                                 [][]byte // with the member index
	finish, stopReason, matchedStop       []byte
}

// appendChunks appends a whole answer as the events of a stream, without the end marker. The texts
// keep their bytes.
func appendChunks(dst []byte, s *tokenize.Scanner, body []byte, usage bool) ([]byte, error) {
	var d document
	if err := d.read(s, body); err != nil {
		return dst, err
	}
	for i := range d.choices {
		dst = d.append(dst, &d.choices[i])
	}
	if usage && d.usage != nil {
		dst = append(append(d.head(dst), `,"choices":[],"usage":`...), d.usage...)
		dst = append(dst, "}\n\n"...)
	}
	return dst, nil
}

// known returns nil instead of null.
func known(value []byte) []byte {
	if string(value) == "null" {
		return nil
	}
	return value
}

func (d *document) read(s *tokenize.Scanner, body []byte) error {
	s.ResetBytes(body)
	err := members(s, body, map[string]*[]byte{
		"id": &d.id, "created": &d.created, "model": &d.model, "system_fingerprint": &d.fingerprint, "usage": &d.usage,
	}, "choices", func() error {
		return s.Array(func(int) error {
			var c choiceParts
			err := members(s, body, map[string]*[]byte{
				"index": &c.index, "logprobs": &c.logprobs, "finish_reason": &c.finish, "stop_reason": &c.stopReason, "matched_stop": &c.matchedStop,
			}, "message", func() error {
				return members(s, body, map[string]*[]byte{
					"content": &c.content, "reasoning_content": &c.thoughts, "reasoning": &c.reasoning, "refusal": &c.refusal,
				}, "tool_calls", func() error {
					if s.Next() != '[' {
						return s.Skip()
					}
					return s.Array(func(i int) error {
						call, err := indexed(s, body, i)
						c.calls = append(c.calls, call)
						return err
					})
				})
			})
			d.choices = append(d.choices, c)
			return err
		})
	})
	if err != nil {
		return err
	}
	return s.End()
}

// members reads an object. It stores the text of known values that are not null, and calls inner to
// read the value of the member named nested.
func members(s *tokenize.Scanner, body []byte, to map[string]*[]byte, nested string, inner func() error) error {
	return s.Object(func(key []byte) error {
		if string(key) == nested {
			return inner()
		}
		dst := to[string(key)]
		if dst == nil {
			return s.Skip()
		}
		value, err := raw(s, body)
		*dst = known(value)
		return err
	})
}

// indexed reads a tool call and returns it with the member index that streams need.
func indexed(s *tokenize.Scanner, body []byte, i int) ([]byte, error) {
	if s.Next() != '{' {
		return raw(s, body)
	}
	from := s.Offset()
	index := strconv.Itoa(i)
	var place span
	empty := true
	err := s.Object(func(key []byte) error {
		empty = false
		if string(key) != "index" {
			return s.Skip()
		}
		s.Next()
		place.from = int(s.Offset() - from)
		err := s.Skip()
		place.to = int(s.Offset() - from)
		return err
	})
	if err != nil {
		return nil, err
	}
	call := body[from:s.Offset()]
	switch {
	case place != (span{}):
		return edited(call, []edit{{place, []byte(index)}}), nil
	case empty:
		return []byte(`{"index":` + index + `}`), nil
	}
	return edited(call, []edit{{span{1, 1}, []byte(`"index":` + index + `,`)}}), nil
}

func (d *document) head(dst []byte) []byte {
	dst = append(dst, `data: {`...)
	for _, m := range []struct {
		name  string
		value []byte
	}{{"id", d.id}, {"created", d.created}, {"model", d.model}, {"system_fingerprint", d.fingerprint}} {
		if m.value != nil {
			dst = append(append(append(append(dst, '"'), m.name...), `":`...), m.value...)
			dst = append(dst, ',')
		}
	}
	return append(dst, `"object":"chat.completion.chunk"`...)
}

func (d *document) append(dst []byte, c *choiceParts) []byte {
	event := func(finish []byte, logprobs []byte, delta ...[]byte) {
		dst = append(d.head(dst), `,"choices":[{"index":`...)
		dst = append(dst, or(c.index, "0")...)
		dst = append(dst, `,"delta":{`...)
		for _, part := range delta {
			dst = append(dst, part...)
		}
		dst = append(append(dst, `},"logprobs":`...), or(logprobs, "null")...)
		dst = append(append(dst, `,"finish_reason":`...), or(finish, "null")...)
		if finish != nil {
			if c.stopReason != nil {
				dst = append(append(dst, `,"stop_reason":`...), c.stopReason...)
			}
			if c.matchedStop != nil {
				dst = append(append(dst, `,"matched_stop":`...), c.matchedStop...)
			}
		}
		dst = append(dst, "}]}\n\n"...)
	}
	event(nil, c.logprobs, []byte(`"role":"assistant","content":""`))
	for _, m := range []struct {
		name  string
		value []byte
	}{{"reasoning_content", c.thoughts}, {"reasoning", c.reasoning}, {"content", c.content}, {"refusal", c.refusal}} {
		if m.value != nil && string(m.value) != `""` {
			event(nil, nil, []byte(`"`+m.name+`":`), m.value)
		}
	}
	for _, call := range c.calls {
		event(nil, nil, []byte(`"tool_calls":[`), call, []byte(`]`))
	}
	event(c.finish, nil)
	return dst
}

func or(value []byte, other string) []byte {
	if value == nil {
		return []byte(other)
	}
	return value
}
