package responses

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// member appends a member to the chat completion.
func (p *parser) member(name, value string) {
	if name == "model" {
		p.model = p.text(value)
	}
	p.rest = append(append(append(p.rest, `,"`...), name...), `":`...)
	p.rest = append(p.rest, value...)
}

// setting translates a member of the request, of reasoning or of text.
func (p *parser) setting(name, value string) {
	switch name {
	case "instructions":
		if value != `""` {
			p.system = slices.Insert(p.system, 0, p.text(value))
		}
	case "max_output_tokens":
		p.member("max_completion_tokens", value)
	case "effort":
		p.member("reasoning_effort", value)
	case "verbosity":
		p.member(name, value)
	case "stream":
		p.streamed = value == "true"
		if !p.streamed && value != "false" {
			p.fail("want true or false")
		}
	case "tool_choice":
		p.choice = value
	case "parallel_tool_calls":
		p.parallel = value
	case "format":
		p.format(value)
	}
}

// format translates the format of the text.
func (p *parser) format(value string) {
	f := p.object(value)
	kind := word(get(f, "type"))
	if _, ok := p.find(formatTable, kind); !ok {
		return
	}
	switch kind {
	case "json_object":
		p.member("response_format", `{"type":"json_object"}`)
	case "json_schema":
		if !p.check(jsonSchemaTable, f) {
			return
		}
		p.rest = append(p.rest, `,"response_format":{"type":"json_schema","json_schema":{"name":`...)
		p.rest = append(p.rest, p.required(f, "name")...)
		for _, name := range [...]string{"description", "schema", "strict"} {
			if v := get(f, name); v != "" {
				p.member(name, v)
			}
		}
		p.rest = append(p.rest, "}}"...)
	}
}

// toolChoice translates tool_choice, after the tools have been translated.
func (p *parser) toolChoice() {
	if p.choice == "" || p.s.Err() != nil {
		return
	}
	kind := word(p.choice)
	var f []field
	if p.choice[0] == '{' {
		f = p.object(p.choice)
		kind = word(get(f, "type"))
	}
	rule, ok := p.find(choiceTable, kind)
	switch {
	case !ok:
	case !p.hasTools && (kind == "auto" || kind == "none"):
	case !p.hasTools:
		p.refuse(kind, "no tool remains that the engine could call")
	case rule.Action == passed:
		p.member("tool_choice", p.choice)
	default:
		p.check(namedTable, f)
		if name, namespace := p.required(f, "name"), p.text(get(f, "namespace")); p.s.Err() == nil {
			p.rest = append(p.rest, `,"tool_choice":{"type":"function","function":{"name":`...)
			p.rest = append(append(p.rest, functionName(namespace, name)...), "}}"...)
		}
	}
	p.failed("tool_choice")
}

// text returns value, which must be a string.
func (p *parser) text(value string) string {
	if value != "" && value[0] != '"' {
		p.fail("want a string")
	}
	return value
}

// required returns the value of a member that must be a string.
func (p *parser) required(f []field, name string) string {
	value := get(f, name)
	switch {
	case value == "":
		p.fail(name + ": missing")
	case value[0] != '"':
		p.fail(name + ": want a string")
	}
	return value
}

// word returns the text of a value that is a word in a table.
func word(value string) string {
	if len(value) >= 2 && value[0] == '"' {
		return value[1 : len(value)-1]
	}
	return value
}

// inner returns a JSON string without its quotes.
func inner(value string) string { return value[1 : len(value)-1] }

// unquote returns the text of a JSON string.
func unquote(value string) string {
	if text := inner(value); !strings.Contains(text, `\`) {
		return text
	}
	return strictjson.New(value, again).Text()
}

// fail sets an error, unless one is already set.
func (p *parser) fail(problem string) { p.s.FailWith(&strictjson.Error{Problem: problem}) }

// failed reports whether there is an error, and adds the place to its path.
func (p *parser) failed(where string) bool {
	if p.s.Err() == nil {
		return false
	}
	p.s.Under(where)
	return true
}

// refuse sets the error for a member or a value. Its path already contains the name of a member of the
// request.
func (p *parser) refuse(member, reason string) {
	p.unsupported = p.unsupported || p.s.Err() == nil
	p.fail(strings.TrimPrefix(member+" is not supported: "+reason, " is "))
}

// unknown is like refuse, for a member or a value that t does not contain.
func (p *parser) unknown(t *table, member string) {
	p.unsupported = p.unsupported || p.s.Err() == nil
	if t == requestTable {
		p.fail("unknown member of the request")
		return
	}
	p.fail(fmt.Sprintf("%.60q is unknown (%s)", member, t.Title))
}

// error returns the error for the client.
func (p *parser) error(err error) *translate.Error {
	out := &translate.Error{Status: 400, Code: "bad_request", Message: err.Error()}
	if p.unsupported {
		out.Code = "unsupported"
	}
	if e, is := err.(*strictjson.Error); is { //nolint:errorlint // made here, never wrapped
		out.Message = e.Path + e.Problem
	}
	return out
}
