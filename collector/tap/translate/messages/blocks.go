package messages

import "github.com/rollout-rl/rollout/collector/tap/translate"

// A turn contains the parts of the message that is being read. All texts are JSON.
type turn struct {
	pieces   []piece
	texts    []string
	thoughts []string
	calls    []call
}

// A piece is a text or an image. An image is either a URL or has data and media.
type piece struct{ text, url, media, data string }

type call struct{ id, name, input string }

func (p *parser) messages() {
	p.raw("[")
	p.chatAt = len(p.out)
	at, role := p.s.Offset(), ""
	for range p.s.Elements {
		at = p.s.Offset()
		role = p.kind(roleTable, "role")
		p.message(role)
	}
	p.raw("]")
	switch {
	case p.s.Err() != nil:
	case role == "":
		p.s.FailAt(at, "want at least one message")
	case role == "assistant":
		p.s.FailAt(at, "the last message is an assistant message, and chat completions cannot continue it")
	}
}

func (p *parser) message(role string) {
	at, begins, found := p.s.Offset(), len(p.out), false
	p.members(messageTable, func(name string) {
		if name != "content" {
			return
		}
		found = true
		switch role {
		case "user":
			p.content(userBlocks, p.userBlock)
		case "assistant":
			p.content(assistantBlocks, p.assistantBlock)
		case "system":
			p.content(systemBlocks, func(string) { p.textBlock() })
		}
	})
	switch {
	case p.s.Err() != nil:
		return
	case !found:
		p.s.FailAt(at, "content is missing")
	case role == "assistant":
		p.assistant()
		return
	case len(p.pieces) == 0 && len(p.out) == begins:
		p.s.FailAt(at, "content: want at least one block")
	}
	p.flush(role)
}

// content reads a string or a list of blocks. It calls read with the type of each block.
func (p *parser) content(types *translate.Table, read func(kind string)) {
	switch p.s.Kind() {
	case '"':
		p.pieces = append(p.pieces, piece{text: p.s.Raw()})
	case '[':
		for range p.s.Elements {
			if kind := p.kind(types, "type"); kind != "" {
				read(kind)
			}
		}
	default:
		p.s.Mismatch("a string or a list of blocks")
	}
}

func (p *parser) userBlock(kind string) {
	switch kind {
	case "text":
		p.textBlock()
	case "image":
		p.image()
	case "tool_result":
		p.flush("user") // the text before the result
		p.toolResult()
	}
}

func (p *parser) assistantBlock(kind string) {
	switch kind {
	case "text":
		p.textBlock()
	case "thinking":
		thought := ""
		p.members(thinkingTable, func(name string) {
			if name == "thinking" {
				thought = p.text()
			}
		})
		p.need(thought, "thinking")
		p.thoughts = append(p.thoughts, thought)
	case "tool_use":
		p.toolUse()
	}
}

func (p *parser) textBlock() {
	text := ""
	p.members(textTable, func(name string) {
		if name == "text" {
			text = p.text()
		}
	})
	p.need(text, "text")
	p.pieces = append(p.pieces, piece{text: text})
}

func (p *parser) image() {
	var x piece
	p.members(imageTable, func(name string) {
		if name != "source" {
			return
		}
		kind := p.kind(sourceTypes, "type")
		p.members(sourceTable, func(name string) {
			switch name {
			case "url":
				x.url = p.text()
			case "media_type":
				x.media = p.text()
			case "data":
				x.data = p.text()
			}
		})
		switch kind {
		case "url":
			p.need(x.url, "url")
		case "base64":
			x.url = ""
			p.need(x.media, "media_type")
			p.need(x.data, "data")
		}
	})
	p.need(x.url+x.data, "source")
	p.pieces = append(p.pieces, x)
}

func (p *parser) toolUse() {
	var c call
	p.members(toolUseTable, func(name string) {
		switch name {
		case "id":
			c.id = p.text()
		case "name":
			c.name = p.text()
		case "input":
			c.input = p.object()
		case "caller":
			p.kind(callerTypes, "type")
		}
	})
	p.need(c.id, "id")
	p.need(c.name, "name")
	p.need(c.input, "input")
	p.calls = append(p.calls, c)
}

func (p *parser) toolResult() {
	id := ""
	p.members(toolResultTable, func(name string) {
		switch name {
		case "tool_use_id":
			id = p.text()
		case "content":
			p.content(resultBlocks, func(string) { p.textBlock() })
		}
	})
	p.need(id, "tool_use_id")
	if p.s.Err() != nil {
		return
	}
	p.comma()
	p.raw(`{"role":"tool","tool_call_id":`, id, `,"content":`)
	p.joined()
	p.raw("}")
}

// flush writes the pieces as a message, if there are any.
func (p *parser) flush(role string) {
	if len(p.pieces) == 0 || p.s.Err() != nil {
		return
	}
	p.comma()
	p.raw(`{"role":"`, role, `","content":`)
	for _, x := range p.pieces {
		if x.text == "" {
			p.parts()
			return
		}
	}
	p.joined()
	p.raw("}")
}

// joined writes the pieces as one string.
func (p *parser) joined() {
	p.texts = p.texts[:0]
	for _, x := range p.pieces {
		p.texts = append(p.texts, x.text)
	}
	p.out = join(p.out, p.texts)
	p.pieces = p.pieces[:0]
}

// parts writes the pieces as a list, and closes the message.
func (p *parser) parts() {
	p.raw("[")
	for _, x := range p.pieces {
		p.comma()
		switch {
		case x.text != "":
			p.raw(`{"type":"text","text":`, x.text, "}")
		case x.url != "":
			p.raw(`{"type":"image_url","image_url":{"url":`, x.url, "}}")
		default:
			media := x.media[1 : len(x.media)-1]
			p.raw(`{"type":"image_url","image_url":{"url":"data:`, media, ";base64,", x.data[1:], "}}")
		}
	}
	p.raw("]}")
	p.pieces = p.pieces[:0]
}
