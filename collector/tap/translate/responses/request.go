package responses

import (
	"slices"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// Dialect is the Responses API. It implements [translate.Dialect].
type Dialect struct{}

// Name returns "responses".
func (Dialect) Name() string { return "responses" }

// Request translates the body of a request. The error is a [*translate.Error] with status 400 and the
// code "unsupported" for a refused or unknown member, or "bad_request" for a malformed body.
func (Dialect) Request(body []byte) (*translate.Call, error) {
	p := parser{
		s:        strictjson.New(string(body), strictjson.Options{HalfPairs: true}),
		messages: append(make([]byte, 0, len(body)+len(body)/8+512), listHead...),
		rest:     make([]byte, 0, len(body)/2+512),
	}
	p.request()
	p.end()
	if err := p.s.End(); err != nil {
		return nil, p.error(err)
	}
	return &translate.Call{Chat: p.chat(), Streamed: p.streamed, Reply: p.reply()}, nil
}

// A parser translates one request. It appends to messages and to rest, which are joined at the end. The
// scanner s reads the body once. If the form of a value depends on a member that can follow it, such as
// type, the value is read again with nested. All errors are set in s.
type parser struct {
	s           *strictjson.Scanner
	nested      strictjson.Scanner
	unsupported bool // the error is about a refused or unknown member

	messages, rest []byte
	turn           turn
	system         []string // the texts of the system message at the beginning
	item           []field
	parts          []part

	hasInput, hasTools, streamed bool
	model, choice, parallel      string          // JSON, or empty
	tools                        map[string]tool // by the names of their functions
	echo                         [len(echoed)]string
}

// A field is a member of an object. The value is JSON, but not null.
type field struct{ name, value string }

// get returns the value of a member, or "".
func get(fields []field, name string) string {
	for i := range fields {
		if fields[i].name == name {
			return fields[i].value
		}
	}
	return ""
}

func (p *parser) request() {
	for name := range p.s.Members {
		if p.s.Null() {
			continue
		}
		rule, ok := p.find(requestTable, name)
		if !ok {
			return
		}
		switch name {
		case "input":
			p.input()
		case "tools":
			p.toolList()
		default:
			value := p.s.Raw()
			if value == "" {
				return
			}
			for i := range echoed {
				if echoed[i].name == name {
					p.echo[i] = value
				}
			}
			p.apply(requestTable, rule, value)
		}
	}
}

// find returns the rule of t for a member or a value. If the rule is a refusal, or if there is none, it
// sets an error and returns false.
func (p *parser) find(t *table, member string) (translate.Rule, bool) {
	rule, known := t.Find(member)
	switch {
	case p.s.Err() != nil:
	case !known:
		p.unknown(t, member)
	case rule.Action == refused && t == requestTable:
		p.refuse("", rule.Note)
	case rule.Action == refused:
		p.refuse(member, rule.Note)
	default:
		return rule, true
	}
	return rule, false
}

// check applies the rules of t to the members of an object. It returns false after an error.
func (p *parser) check(t *table, object []field) bool {
	for _, f := range object {
		rule, ok := p.find(t, f.name)
		if !ok {
			return false
		}
		if t.nested[f.name] != nil {
			p.apply(t, rule, f.value)
			if p.failed(f.name) {
				return false
			}
		}
	}
	return true
}

// apply applies a rule of t, which is not a refusal, to the value of its member.
func (p *parser) apply(t *table, rule translate.Rule, value string) {
	switch below := t.nested[rule.Member]; {
	case below != nil:
		p.values(below, value)
	case rule.Action == passed:
		p.member(rule.Member, value)
	case rule.Action == translated:
		p.setting(rule.Member, value)
	}
}

// values applies the rules of t to a value. If t is about words, the value is a word, a list of words, or
// an object whose type is the word. Otherwise it is an object.
func (p *parser) values(t *table, value string) {
	switch {
	case !t.words:
		for _, f := range p.object(value) {
			if rule, ok := p.find(t, f.name); ok {
				p.apply(t, rule, f.value)
				p.failed(f.name)
			}
		}
	case value[0] == '{':
		_, _ = p.find(t, word(get(p.object(value), "type")))
	case value[0] == '[':
		for _, element := range p.list(value) {
			p.values(t, element)
		}
	default:
		_, _ = p.find(t, word(value))
	}
}

// object returns the members of an object that p.s has already read.
func (p *parser) object(value string) []field {
	p.nested.Reset(value, again)
	fields := collect(&p.nested, nil)
	p.readAgain()
	return fields
}

// list returns the elements of a list that p.s has already read.
func (p *parser) list(value string) (elements []string) {
	p.nested.Reset(value, again)
	for range p.nested.Elements {
		elements = append(elements, p.nested.Raw())
	}
	p.readAgain()
	return elements
}

// readAgain sets the error of p.nested, which is about the type of a value.
func (p *parser) readAgain() {
	if err := p.nested.Err(); err != nil {
		p.s.FailWith(err)
	}
}

// again contains the options for text that has already been checked.
var again = strictjson.Options{HalfPairs: true, EqualNames: true, CheckedUTF8: true}

// collect reads an object and appends its members to fields, except those with the value null.
func collect(s *strictjson.Scanner, fields []field) []field {
	for name := range s.Members {
		if value := s.Raw(); value != "null" {
			fields = append(fields, field{name, value})
		}
	}
	return fields
}

// end translates the members that depend on others.
func (p *parser) end() {
	if p.s.Err() == nil && !p.hasInput {
		p.fail("input: missing")
	}
	if p.parallel != "" && p.hasTools {
		p.member("parallel_tool_calls", p.parallel)
	}
	p.toolChoice()
	p.endTurn()
}

// listHead is the beginning of the chat completion.
const listHead = `{"messages":[`

// chat returns the body of the chat completion.
func (p *parser) chat() []byte {
	out := p.messages
	if len(p.system) > 0 {
		system := []byte(`{"role":"system","content":"`)
		for i, text := range p.system {
			if i > 0 {
				system = append(system, `\n\n`...)
			}
			system = append(system, inner(text)...)
		}
		system = append(system, `"}`...)
		if len(out) > len(listHead) {
			system = append(system, ',')
		}
		out = slices.Insert(out, len(listHead), system...)
	}
	out = append(out, ']')
	return append(append(out, p.rest...), '}')
}
