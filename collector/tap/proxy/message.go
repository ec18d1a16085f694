package proxy

import (
	"slices"

	"github.com/rollout-rl/rollout/tokenize"
)

// A message is the assistant message in an answer. It joins the deltas of a stream. All texts stay
// JSON text, so that they keep their bytes.
type message struct {
	seen      bool
	content   spoken
	thoughts  spoken // reasoning_content
	reasoning spoken // the same in newer versions of vLLM
	whole     []byte // the list tool_calls of an answer that is not a stream
	calls     []toolCall
	// If splits is true, the message of a whole answer becomes the events of a stream. split contains
	// its tool calls, each with its index.
	splits  bool
	split   [][]byte
	refusal spoken
	bytes   int // size of everything above
}

// A spoken is a JSON string without its quotes, or another JSON value.
type spoken struct {
	text  []byte
	seen  bool
	other []byte
}

// A toolCall is a tool call that arrives in pieces.
type toolCall struct {
	index     int32
	id, kind  []byte // JSON
	name, arg spoken
}

// maxToolCalls limits the number of tool calls in a message.
const maxToolCalls = 1024

// read reads a message or a delta. The message of a whole answer keeps references to body.
func (m *message) read(s *tokenize.Scanner, body []byte, streamed bool) error {
	m.seen = true
	return s.Object(func(key []byte) error {
		var to *spoken
		switch string(key) {
		case "content":
			to = &m.content
		case "reasoning_content":
			to = &m.thoughts
		case "reasoning":
			to = &m.reasoning
		case "refusal":
			if m.splits {
				to = &m.refusal
			}
		case "tool_calls":
			switch {
			case s.Next() != '[':
				return s.Skip()
			case streamed:
				return s.Array(func(i int) error { return m.call(s, body, i) })
			}
			return m.list(s, body)
		}
		if to == nil {
			return s.Skip()
		}
		return m.add(s, body, to)
	})
}

// add reads a value and appends it to a text.
func (m *message) add(s *tokenize.Scanner, body []byte, to *spoken) error {
	value, err := raw(s, body)
	if err != nil {
		return err
	}
	m.bytes += len(value)
	switch {
	case value[0] == '"':
		to.text, to.seen = append(to.text, value[1:len(value)-1]...), true
	case value[0] != 'n':
		to.other = slices.Clone(value)
	}
	return nil
}

// list reads the tool calls of a whole answer.
func (m *message) list(s *tokenize.Scanner, body []byte) error {
	at := s.Offset()
	m.split = nil
	err := s.Array(func(i int) error {
		if !m.splits {
			return s.Skip()
		}
		call, err := indexed(s, body, i)
		m.split = append(m.split, call)
		return err
	})
	m.whole = body[at:s.Offset()]
	m.bytes += len(m.whole)
	return err
}

func (m *message) call(s *tokenize.Scanner, body []byte, i int) error {
	if s.Next() != '{' {
		return s.Skip()
	}
	var part toolCall
	part.index = int32(min(i, maxToolCalls))
	keep := func(dst *[]byte) error {
		value, err := raw(s, body)
		if err == nil && value[0] == '"' {
			*dst = value
		}
		return err
	}
	err := s.Object(func(key []byte) error {
		switch string(key) {
		case "index":
			return count(s, &part.index)
		case "id":
			return keep(&part.id)
		case "type":
			return keep(&part.kind)
		case "function":
			if s.Next() != '{' {
				return s.Skip()
			}
			return s.Object(func(key []byte) error {
				switch string(key) {
				case "name":
					return m.add(s, body, &part.name)
				case "arguments":
					return m.add(s, body, &part.arg)
				}
				return s.Skip()
			})
		}
		return s.Skip()
	})
	if err == nil {
		m.join(&part)
	}
	return err
}

// join adds a piece of a tool call to the call with the same index.
func (m *message) join(part *toolCall) {
	at := slices.IndexFunc(m.calls, func(c toolCall) bool { return c.index == part.index })
	if at < 0 {
		if len(m.calls) == maxToolCalls {
			return
		}
		m.calls = append(m.calls, toolCall{index: part.index})
		at = len(m.calls) - 1
	}
	c := &m.calls[at]
	if part.id != nil {
		c.id = slices.Clone(part.id)
	}
	if part.kind != nil {
		c.kind = slices.Clone(part.kind)
	}
	c.name.join(&part.name)
	c.arg.join(&part.arg)
}

func (t *spoken) join(more *spoken) {
	t.text, t.seen = append(t.text, more.text...), t.seen || more.seen
	if more.other != nil {
		t.other = more.other
	}
}

// append appends the text as JSON.
func (t *spoken) append(dst []byte) []byte {
	switch {
	case t.seen:
		return append(append(append(dst, '"'), t.text...), '"')
	case t.other != nil:
		return append(dst, t.other...)
	}
	return append(dst, null...)
}

func (t *spoken) known() bool { return t.seen || t.other != nil }

// json returns the message as JSON, or nil if no part of a message has arrived.
func (m *message) json() []byte {
	if m == nil || !m.seen {
		return nil
	}
	out := make([]byte, 0, m.bytes+128)
	out = append(out, `{"role":"assistant","content":`...)
	out = m.content.append(out)
	for _, thoughts := range []*spoken{&m.thoughts, &m.reasoning} {
		if thoughts.known() {
			out = append(out, `,"reasoning_content":`...)
			out = thoughts.append(out)
			break
		}
	}
	switch {
	case m.whole != nil && string(m.whole) != "[]":
		out = append(append(out, `,"tool_calls":`...), m.whole...)
	case len(m.calls) > 0:
		out = append(out, `,"tool_calls":[`...)
		for i := range m.calls {
			if i > 0 {
				out = append(out, ',')
			}
			out = m.calls[i].append(out)
		}
		out = append(out, ']')
	}
	return append(out, '}')
}

func (c *toolCall) append(dst []byte) []byte {
	dst = append(dst, '{')
	if c.id != nil {
		dst = append(append(append(dst, `"id":`...), c.id...), ',')
	}
	dst = append(dst, `"type":`...)
	if c.kind != nil {
		dst = append(dst, c.kind...)
	} else {
		dst = append(dst, `"function"`...)
	}
	dst = append(dst, `,"function":{"name":`...)
	dst = c.name.append(dst)
	dst = append(dst, `,"arguments":`...)
	dst = c.arg.append(dst)
	return append(dst, `}}`...)
}
