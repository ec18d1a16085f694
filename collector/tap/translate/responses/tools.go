package responses

import "strconv"

// A tool is a tool of the request whose calls are not function_call items with the function's name.
type tool struct {
	custom          bool
	namespace, name string // JSON; the namespace is empty if there is none
}

// toolList translates the list of tools.
func (p *parser) toolList() {
	for range p.s.Elements {
		if f := collect(p.s, nil); p.s.Err() == nil {
			p.tool(f, nil)
		}
	}
	if p.hasTools {
		p.rest = append(p.rest, ']')
	}
}

// tool appends the function of a tool, or the functions of a namespace. The tool can belong to a
// namespace.
func (p *parser) tool(f, namespace []field) {
	kind := word(get(f, "type"))
	rule, ok := p.find(toolTable, kind)
	if !ok || rule.Action == dropped {
		return
	}
	switch kind {
	case "function":
		if p.check(functionTable, f) {
			p.function(f, namespace, get(f, "parameters"), false)
		}
	case "custom":
		if !p.check(customTable, f) {
			return
		}
		p.function(f, namespace, p.parameters(get(f, "format")), true)
	case "namespace":
		if namespace != nil {
			p.refuse(kind, "a namespace cannot contain a namespace")
			return
		}
		if p.check(namespaceTable, f) {
			for i, value := range p.list(get(f, "tools")) {
				p.tool(p.object(value), f)
				if p.failed("element " + strconv.Itoa(i)) {
					p.failed("tools")
					return
				}
			}
		}
	}
}

// parameters returns the parameters of a custom tool's function.
func (p *parser) parameters(format string) string {
	const head, tail = `{"type":"object","properties":{"input":{"type":"string"`, `}},"required":["input"],"additionalProperties":false}`
	if format == "" {
		return head + tail
	}
	f := p.object(format)
	kind := word(get(f, "type"))
	if _, ok := p.find(customFormatTable, kind); ok && kind == "grammar" {
		return head + `,"description":` + p.required(f, "definition") + tail
	}
	return head + tail
}

func (p *parser) function(f, namespace []field, parameters string, custom bool) {
	t := tool{custom: custom, name: p.required(f, "name")}
	description := p.text(get(f, "description"))
	if namespace != nil {
		t.namespace = p.required(namespace, "name")
		if d := p.text(get(namespace, "description")); d != "" && p.s.Err() == nil {
			if description == "" {
				description = d
			} else {
				description = `"` + inner(d) + `\n\n` + inner(description) + `"`
			}
		}
	}
	if p.s.Err() != nil {
		return
	}
	name := functionName(t.namespace, t.name)
	p.remember(unquote(name), t)
	if p.hasTools {
		p.rest = append(p.rest, ',')
	} else {
		p.rest = append(p.rest, `,"tools":[`...)
	}
	p.hasTools = true
	p.rest = append(append(p.rest, `{"type":"function","function":{"name":`...), name...)
	if description != "" {
		p.member("description", description)
	}
	if parameters != "" {
		p.member("parameters", parameters)
	}
	if strict := get(f, "strict"); strict != "" {
		p.member("strict", strict)
	}
	p.rest = append(p.rest, "}}"...)
}

// remember stores a tool under the name of its function. The name must be unique.
func (p *parser) remember(name string, t tool) {
	if _, has := p.tools[name]; has {
		p.fail("two tools have the name " + strconv.Quote(name))
		return
	}
	if p.tools == nil {
		p.tools = map[string]tool{}
	}
	p.tools[name] = t
}
