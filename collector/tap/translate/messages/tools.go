package messages

// tools reads the list of tools.
func (p *parser) tools() {
	before := len(p.out)
	p.member("tools")
	p.raw("[")
	empty := len(p.out)
	for range p.s.Elements {
		p.tool()
	}
	if len(p.out) == empty {
		p.out = p.out[:before]
		return
	}
	p.raw("]")
}

func (p *parser) tool() {
	var name, description, schema, strict string
	deferred := false
	p.members(toolTable, func(member string) {
		switch member {
		case "type":
			at := p.s.Offset()
			p.known(toolTypes, p.s.Text(), at)
		case "name":
			name = p.text()
		case "description":
			description = p.text()
		case "input_schema":
			schema = p.object()
		case "strict":
			from := p.s.Offset()
			p.s.Bool()
			strict = p.s.Since(from)
		case "allowed_callers":
			for range p.s.Elements {
				at := p.s.Offset()
				p.known(callerTypes, p.s.Text(), at)
			}
		case "defer_loading":
			deferred = p.s.Bool()
		}
	})
	p.need(name, "name")
	p.need(schema, "input_schema")
	if deferred {
		return
	}
	p.comma()
	p.raw(`{"type":"function","function":{"name":`, name)
	if description != "" {
		p.raw(`,"description":`, description)
	}
	p.raw(`,"parameters":`, schema)
	if strict != "" {
		p.raw(`,"strict":`, strict)
	}
	p.raw("}}")
}

func (p *parser) choice() {
	kind, name, single := p.kind(choiceTypes, "type"), "", false
	p.members(choiceTable, func(member string) {
		switch member {
		case "name":
			name = p.text()
		case "disable_parallel_tool_use":
			single = p.s.Bool()
		}
	})
	p.member("tool_choice")
	switch kind {
	case "any":
		p.raw(`"required"`)
	case "tool":
		p.need(name, "name")
		p.raw(`{"type":"function","function":{"name":`, name, "}}")
	default:
		p.raw(`"`, kind, `"`)
	}
	if single {
		p.member("parallel_tool_calls")
		p.raw("false")
	}
}

func (p *parser) thinking() {
	kind := p.kind(thinkingTypes, "type")
	p.members(thinkingConfig, func(string) {})
	switch kind {
	case "enabled":
		p.member("chat_template_kwargs")
		p.raw(`{"enable_thinking":true,"thinking":true}`)
	case "disabled":
		p.member("chat_template_kwargs")
		p.raw(`{"enable_thinking":false,"thinking":false}`)
	}
}

func (p *parser) outputConfig() {
	p.members(outputTable, func(name string) {
		switch name {
		case "effort":
			p.member("reasoning_effort")
			p.raw(p.text())
		case "format":
			p.kind(formatTypes, "type")
			schema := ""
			p.members(formatTable, func(name string) {
				if name == "schema" {
					schema = p.object()
				}
			})
			p.need(schema, "schema")
			p.member("response_format")
			p.raw(`{"type":"json_schema","json_schema":{"name":"output","schema":`, schema, `,"strict":true}}`)
		}
	})
}

// context reads context_management. An edit is accepted only if it changes nothing.
func (p *parser) context() {
	p.members(contextTable, func(string) {
		for range p.s.Elements {
			p.kind(editTypes, "type")
			keep := false
			p.members(editTable, func(name string) {
				if name != "keep" {
					return
				}
				keep = true
				if p.s.Kind() == '{' {
					p.kind(keepTypes, "type")
					return
				}
				at := p.s.Offset()
				p.known(keepTypes, p.s.Text(), at)
			})
			if !keep {
				p.s.Fail("keep is missing, and the default removes thinking blocks")
			}
		}
	})
}
