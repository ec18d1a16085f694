package responses

import "strings"

// input translates the input: a text or a list of items.
func (p *parser) input() {
	p.hasInput = true
	if p.s.Kind() == '"' {
		p.open("user")
		p.messages = append(append(p.messages, p.s.Raw()...), '}')
		return
	}
	for range p.s.Elements {
		p.item = collect(p.s, p.item[:0])
		if p.s.Err() == nil {
			p.inputItem(p.item)
		}
	}
}

// inputItem translates an item. Its members can have any order, so they are collected first.
func (p *parser) inputItem(f []field) {
	kind := word(get(f, "type"))
	if kind == "" {
		switch {
		case get(f, "role") != "":
			kind = "message"
		case get(f, "id") != "":
			kind = "item_reference"
		default:
			p.fail("type: missing")
			return
		}
	}
	if _, ok := p.find(itemTable, kind); !ok {
		return
	}
	switch kind {
	case "message":
		if p.check(messageTable, f) {
			p.message(f)
		}
	case "reasoning":
		if p.check(reasoningItemTable, f) {
			p.reasoning(f)
		}
	case "function_call":
		if p.check(callTable, f) {
			p.call(f, p.required(f, "arguments"), "")
		}
	case "custom_tool_call":
		if p.check(customCallTable, f) {
			p.call(f, "", p.required(f, "input"))
		}
	case "function_call_output", "custom_tool_call_output":
		if p.check(outputTable, f) {
			p.output(f)
		}
	}
}

// open ends the turn and appends the head of another message.
func (p *parser) open(role string) {
	p.endTurn()
	p.head(role)
	p.messages = append(p.messages, `","content":`...)
}

// head appends the beginning of a message, up to the role.
func (p *parser) head(role string) {
	if p.messages[len(p.messages)-1] != '[' {
		p.messages = append(p.messages, ',')
	}
	p.messages = append(append(p.messages, `{"role":"`...), role...)
}

func (p *parser) message(f []field) {
	role := word(p.required(f, "role"))
	if _, ok := p.find(roleTable, role); !ok {
		return
	}
	content := get(f, "content")
	if role == "assistant" {
		p.begin(get(f, "id"), rankText)
		p.spoken(content)
		return
	}
	if role == "developer" {
		role = "system"
	}
	if role == "system" && !p.turn.open && len(p.messages) == len(listHead) {
		p.leading(content)
		return
	}
	p.open(role)
	p.content("content", content)
	p.messages = append(p.messages, '}')
}

// leading adds the text of a system message at the beginning of the input to p.system.
func (p *parser) leading(content string) {
	if content == "" || content[0] == '"' {
		p.system = append(p.system, p.required([]field{{"content", content}}, "content"))
		return
	}
	for _, part := range p.readParts("content", content) {
		if part.kind != textPart {
			p.refuse("content", "this system message can contain only texts")
		}
		p.system = append(p.system, part.text)
	}
}

// output translates the result of a tool.
func (p *parser) output(f []field) {
	p.open("tool")
	p.content("output", get(f, "output"))
	p.messages = append(append(append(p.messages, `,"tool_call_id":`...), p.required(f, "call_id")...), '}')
}

// content appends the content of a message that is not an assistant message.
func (p *parser) content(name, value string) {
	if value == "" {
		p.fail(name + ": missing")
		return
	}
	if value[0] == '"' {
		p.messages = append(p.messages, value...)
		return
	}
	parts := p.readParts(name, value)
	switch {
	case len(parts) == 0:
		p.messages = append(p.messages, `""`...)
		return
	case len(parts) == 1 && parts[0].kind == textPart:
		p.messages = append(p.messages, parts[0].text...)
		return
	}
	for i, part := range parts {
		p.messages = append(p.messages, "[,"[min(i, 1)])
		switch part.kind {
		case imagePart:
			p.messages = append(append(p.messages, `{"type":"image_url","image_url":{"url":`...), part.text...)
			if part.detail != "" {
				p.messages = append(append(p.messages, `,"detail":`...), part.detail...)
			}
			p.messages = append(p.messages, "}}"...)
		case refusalPart:
			p.refuse(name+": refusal", "only an assistant message can contain it")
		default:
			p.messages = append(append(append(p.messages, `{"type":"text","text":`...), part.text...), '}')
		}
	}
	p.messages = append(p.messages, ']')
}

// A part is a part of a content.
type part struct {
	kind         byte
	text, detail string // JSON. The text of an image is its URL
}

const (
	textPart = iota
	refusalPart
	imagePart
)

// readParts reads a list of parts. The result is valid until the next call.
func (p *parser) readParts(name, value string) []part {
	p.nested.Reset(value, again)
	p.parts = p.parts[:0]
	var space [8]field
	for range p.nested.Elements {
		f := collect(&p.nested, space[:0])
		if p.nested.Err() != nil {
			break
		}
		if part, ok := p.part(f); ok {
			p.parts = append(p.parts, part)
		}
	}
	p.readAgain()
	p.failed(name)
	return p.parts
}

func (p *parser) part(f []field) (part, bool) {
	kind := word(get(f, "type"))
	if _, ok := p.find(partTable, kind); !ok {
		return part{}, false
	}
	members := textPartTable
	if kind == "input_image" {
		members = imagePartTable
	}
	if !p.check(members, f) {
		return part{}, false
	}
	switch kind {
	case "input_image":
		return part{imagePart, p.required(f, "image_url"), get(f, "detail")}, true
	case "refusal":
		return part{refusalPart, p.required(f, "refusal"), ""}, true
	}
	return part{textPart, p.required(f, "text"), ""}, true
}

// functionName returns the name of a tool's function in a chat completion.
func functionName(namespace, name string) string {
	if namespace == "" || name == "" {
		return name
	}
	return strings.Join([]string{`"`, inner(namespace), "__", inner(name), `"`}, "")
}
