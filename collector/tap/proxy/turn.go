package proxy

import (
	"strings"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A turn is an assistant message, with the positions of the texts that continuity can replace. All
// positions are offsets in the JSON of the message.
type turn struct {
	content  piece
	thoughts [2]piece // in the order of thoughtNames
	calls    []turnCall
}

// thoughtNames contains the names of the member with the reasoning. Newer versions of vLLM use the
// second name.
var thoughtNames = [2]string{"reasoning_content", "reasoning"}

// A piece is a text in a message. If the message lacks it or has null, text is empty.
type piece struct {
	text string
	at   span // the JSON string or the null; the zero span if the message lacks the member
	null bool
}

// json returns the JSON of the text in its message.
func (p *piece) json(message string) string { return message[p.at.from:p.at.to] }

// A turnCall is a tool call.
type turnCall struct {
	id, name  string
	arguments piece
}

// parseTurn parses a message. It returns false for a message that is not an assistant message, and
// for one that an engine could read in more than one way.
func parseTurn(raw string) (t turn, ok bool) {
	s := strictjson.New(raw, strictjson.Options{})
	p := turnParser{s: s}
	role := ""
	for name := range s.Members {
		switch name {
		case "role":
			if role = p.text().text; role != "assistant" {
				return t, false
			}
		case "content":
			t.content = p.content()
		case thoughtNames[0]:
			t.thoughts[0] = p.text()
		case thoughtNames[1]:
			t.thoughts[1] = p.text()
		case "tool_calls":
			if !p.null() {
				for range s.Elements {
					t.calls = append(t.calls, p.call())
				}
			}
		case "function_call":
			p.bad = p.bad || !p.null()
		}
	}
	return t, s.End() == nil && !p.bad && role == "assistant"
}

type turnParser struct {
	s   *strictjson.Scanner
	bad bool
}

func (p *turnParser) null() bool {
	if p.s.Kind() != 'n' {
		return false
	}
	p.s.Skip()
	return true
}

// text reads a string or null.
func (p *turnParser) text() (t piece) {
	kind := p.s.Kind()
	t.at.from = p.s.Offset()
	switch kind {
	case '"':
		t.text = p.s.Text()
	case 'n':
		t.null = true
		p.s.Skip()
	default:
		p.bad = true
		p.s.Skip()
	}
	t.at.to = p.s.Offset()
	return t
}

// content reads a string, null, or a list with one text. Engines join several texts in different
// ways.
func (p *turnParser) content() (t piece) {
	if p.s.Kind() != '[' {
		return p.text()
	}
	from, n := p.s.Offset(), 0
	for range p.s.Elements {
		n++
		kind, known := "", false
		for name := range p.s.Members {
			switch name {
			case "type":
				kind = p.text().text
			case "text":
				t, known = p.text(), true
			}
		}
		p.bad = p.bad || kind != "text" || !known || t.null
	}
	p.bad = p.bad || n > 1
	if n == 0 {
		t.at, t.null = span{from, p.s.Offset()}, true
	}
	return t
}

func (p *turnParser) call() (c turnCall) {
	var id, kind, name piece
	function := false
	for key := range p.s.Members {
		switch key {
		case "id":
			id = p.text()
		case "type":
			kind = p.text()
		case "function":
			function = true
			for key := range p.s.Members {
				switch key {
				case "name":
					name = p.text()
				case "arguments":
					c.arguments = p.text()
				}
			}
		}
	}
	c.id, c.name = id.text, name.text
	p.bad = p.bad || !function || c.id == "" || c.arguments.at == (span{}) || c.arguments.null ||
		kind.text != "function" && kind.at != (span{})
	return c
}

// cut splits a text into the white space before it, the text, and the white space after it.
func cut(s string) (before, text, after string) {
	text = strings.TrimSpace(s)
	if text == "" {
		return s, "", ""
	}
	i := strings.Index(s, text)
	return s[:i], text, s[i+len(text):]
}
