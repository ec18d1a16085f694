package proxy

import (
	"strconv"

	"github.com/rollout-rl/rollout/tokenize"
)

// A document contains the parts of a whole answer that become the events of a stream. All values are
// JSON. A nil document, or nil choiceParts, keep nothing.
type document struct {
	id, created, model, fingerprint []byte
	choices                         []*choiceParts
	usage                           []byte
}

type choiceParts struct {
	index, logprobs                 []byte
	message                         message
	finish, stopReason, matchedStop []byte
}

// choice begins the next choice.
func (d *document) choice() *choiceParts {
	if d == nil {
		return nil
	}
	c := &choiceParts{message: message{splits: true}}
	d.choices = append(d.choices, c)
	return c
}

// keep calls read to parse the value of a member, and keeps the value if it is needed.
func (d *document) keep(s *tokenize.Scanner, body, key []byte, read func(key []byte) error) error {
	var to *[]byte
	if d != nil {
		switch string(key) {
		case "id":
			to = &d.id
		case "created":
			to = &d.created
		case "model":
			to = &d.model
		case "system_fingerprint":
			to = &d.fingerprint
		case "usage":
			to = &d.usage
		}
	}
	return keep(s, body, key, to, read)
}

// keep is like document.keep.
func (c *choiceParts) keep(s *tokenize.Scanner, body, key []byte, read func(key []byte) error) error {
	var to *[]byte
	if c != nil {
		switch string(key) {
		case "index":
			to = &c.index
		case "logprobs":
			to = &c.logprobs
		case "finish_reason":
			to = &c.finish
		case "stop_reason":
			to = &c.stopReason
		case "matched_stop":
			to = &c.matchedStop
		}
	}
	return keep(s, body, key, to, read)
}

func keep(s *tokenize.Scanner, body, key []byte, to *[]byte, read func(key []byte) error) error {
	if to == nil {
		return read(key)
	}
	s.Next()
	at := s.Offset()
	err := read(key)
	if value := body[at:s.Offset()]; string(value) != "null" {
		*to = value
	}
	return err
}

// events appends the answer as the events of a stream, without the end marker. The texts keep their
// bytes.
func (d *document) events(dst []byte, usage bool) []byte {
	for _, c := range d.choices {
		dst = d.append(dst, c)
	}
	if usage && d.usage != nil {
		dst = append(append(d.head(dst), `,"choices":[],"usage":`...), d.usage...)
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
	event(c.finish, nil)
	return dst
}

func or(value []byte, other string) []byte {
	if value == nil {
		return []byte(other)
	}
	return value
}
