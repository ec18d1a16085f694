package messages

import (
	"strings"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// argumentsMember is the only member of an input that contains arguments as a text.
const argumentsMember = "_arguments"

// assistant writes an assistant message in the form that package proxy uses for answers.
func (p *parser) assistant() {
	p.comma()
	p.raw(`{"role":"assistant","content":`)
	if len(p.pieces) > 0 {
		p.joined()
	} else {
		p.raw("null")
	}
	if len(p.thoughts) > 0 {
		p.raw(`,"reasoning_content":`)
		p.out = join(p.out, p.thoughts)
	}
	if len(p.calls) > 0 {
		p.raw(`,"tool_calls":[`)
		for _, c := range p.calls {
			p.comma()
			p.raw(`{"id":`, c.id, `,"type":"function","function":{"name":`, c.name, `,"arguments":`)
			if text := wrapped(c.input); text != "" {
				p.raw(text)
			} else {
				p.out = strictjson.AppendText(p.out, c.input)
			}
			p.raw("}}")
		}
		p.raw("]")
	}
	p.raw("}")
	p.thoughts, p.calls = p.thoughts[:0], p.calls[:0]
}

// wrapped returns the string in an object with only the member _arguments, as JSON. For any other
// object, it returns "".
func wrapped(object string) (text string) {
	rest := strings.TrimLeft(object[1:], " \n\r\t")
	if !strings.HasPrefix(rest, `"_`) && !strings.HasPrefix(rest, `"\`) {
		return "" // most objects
	}
	s := strictjson.New(object, strictjson.Options{HalfPairs: true, CheckedUTF8: true})
	n := 0
	for name := range s.Members {
		if n++; name == argumentsMember && s.Kind() == '"' {
			text = s.Raw()
		}
	}
	if n != 1 {
		return ""
	}
	return text
}
