package proxy

import (
	"strconv"

	"github.com/rollout-rl/rollout/tokenize"
)

// A document contains the parts of a whole answer that become the events of a stream.
type document struct {
	members members
	choices []*choiceParts
}

type choiceParts struct {
	members members
	message message
}

func newDocument() *document {
	return &document{members: members{"id": nil, "created": nil, "model": nil, "system_fingerprint": nil, "usage": nil}}
}

// choice begins the next choice.
func (d *document) choice() *choiceParts {
	c := &choiceParts{
		members: members{"index": nil, "logprobs": nil, "finish_reason": nil, "stop_reason": nil, "matched_stop": nil},
		message: message{splits: true},
	}
	d.choices = append(d.choices, c)
	return c
}

// members contains values of an object as JSON, by name. A value is nil if the object lacks it or has
// null. keep stores only the values of names that are already in the map.
type members map[string][]byte

// keep calls read to parse the value of a member, and stores the value. m can be nil.
func (m members) keep(s *tokenize.Scanner, body, key []byte, read func(key []byte) error) error {
	if _, needed := m[string(key)]; !needed {
		return read(key)
	}
	s.Next()
	at, name := s.Offset(), string(key) // key is invalid after read
	err := read(key)
	if value := body[at:s.Offset()]; string(value) != "null" {
		m[name] = value
	}
	return err
}

// append appends the members with these names, each with the text before and after around it.
func (m members) append(dst []byte, before, after string, names ...string) []byte {
	for _, name := range names {
		if value := m[name]; value != nil {
			dst = append(append(append(dst, before...), `"`+name+`":`...), value...)
			dst = append(dst, after...)
		}
	}
	return dst
}

// events appends the answer as the events of a stream, without the end marker. The texts keep their
// bytes.
func (d *document) events(dst []byte, usage bool) []byte {
	for _, c := range d.choices {
		dst = d.append(dst, c)
	}
	if usage && d.members["usage"] != nil {
		dst = d.members.append(append(d.head(dst), `,"choices":[]`...), ",", "", "usage")
		dst = append(dst, "}\n\n"...)
	}
	return dst
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
	dst = d.members.append(append(dst, `data: {`...), "", ",", "id", "created", "model", "system_fingerprint")
	return append(dst, `"object":"chat.completion.chunk"`...)
}

func (d *document) append(dst []byte, c *choiceParts) []byte {
	event := func(finish []byte, logprobs []byte, delta ...[]byte) {
		dst = append(d.head(dst), `,"choices":[{"index":`...)
		dst = append(dst, or(c.members["index"], "0")...)
		dst = append(dst, `,"delta":{`...)
		for _, part := range delta {
			dst = append(dst, part...)
		}
		dst = append(append(dst, `},"logprobs":`...), or(logprobs, "null")...)
		dst = append(append(dst, `,"finish_reason":`...), or(finish, "null")...)
		if finish != nil {
			dst = c.members.append(dst, ",", "", "stop_reason", "matched_stop")
		}
		dst = append(dst, "}]}\n\n"...)
	}
	event(nil, c.members["logprobs"], []byte(`"role":"assistant","content":""`))
	for _, m := range []struct {
		name string
		text *spoken
	}{{"reasoning_content", &c.message.thoughts}, {"reasoning", &c.message.reasoning}, {"content", &c.message.content}, {"refusal", &c.message.refusal}} {
		if len(m.text.text) > 0 || m.text.other != nil {
			event(nil, nil, []byte(`"`+m.name+`":`), m.text.append(nil))
		}
	}
	for _, call := range c.message.split {
		event(nil, nil, []byte(`"tool_calls":[`), call, []byte(`]`))
	}
	event(c.members["finish_reason"], nil)
	return dst
}

func or(value []byte, other string) []byte {
	if value == nil {
		return []byte(other)
	}
	return value
}
