package enginesim

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"
)

// A parsed is the model's text, separated by the engine's reasoning and tool parsers.
type parsed struct {
	reasoning, content string
	calls              []parsedCall
	pieces             []piece
	length             int // bytes of the model's text
}

type parsedCall struct{ id, name, arguments string }

// The kinds of pieces.
const (
	reasoningPiece = iota
	contentPiece
	namePiece
	argumentsPiece
)

// A piece is a part of an answer that a client sees. The client sees its first n bytes when the
// model has sampled at+n bytes of text.
type piece struct {
	kind, call, at int
	text           string
}

var calledTool = regexp.MustCompile(`(?s)<tool_call>\s*(\{.*?\})\s*</tool_call>`)

// parse separates the model's text. Without tools, the text of tool calls remains content. With
// reasoning, a think block at the start becomes reasoning. If one tool call is malformed, all of
// them remain content, as in vLLM's hermes parser.
func (e *Engine) parse(text string, tools bool, id func(i int) string) parsed {
	p := parsed{length: len(text)}
	from := 0
	if rest, ok := strings.CutPrefix(text, "<think>"); ok && e.cfg.Reasoning {
		thought, _, ended := strings.Cut(rest, "</think>")
		at := len("<think>")
		from = at + len(thought)
		if ended {
			from += len("</think>")
		}
		if e.cfg.Dialect.sglang() { // SGLang strips both texts, vLLM neither
			thought, at = trimmed(thought, at)
		}
		p.reasoning = thought
		p.pieces = append(p.pieces, piece{reasoningPiece, 0, at, thought})
	}
	content := []piece{{contentPiece, 0, from, text[from:]}}
	if tools {
		if calls, outside, ok := toolCalls(text, from); ok {
			content = outside
			for i := range calls {
				calls[i].id = id(i)
			}
			p.calls = calls
		}
	}
	p.add(content, len(p.calls) > 0 || from > 0 && e.cfg.Dialect.sglang())
	return p
}

// add appends the content's pieces and the calls between them. If trim is set, it removes the
// white space around the whole content.
func (p *parsed) add(pieces []piece, trim bool) {
	for i := range pieces {
		if c := &pieces[i]; c.kind == contentPiece && trim && strings.TrimSpace(p.content) == "" {
			text := strings.TrimLeft(c.text, " \t\r\n")
			c.at += len(c.text) - len(text)
			c.text = text
		}
		if pieces[i].kind == contentPiece {
			p.content += pieces[i].text
		}
	}
	if trim {
		p.content = strings.TrimRight(p.content, " \t\r\n")
		left := len(p.content)
		for i := range pieces {
			if c := &pieces[i]; c.kind == contentPiece {
				c.text = c.text[:min(left, len(c.text))]
				left -= len(c.text)
			}
		}
	}
	p.pieces = append(p.pieces, pieces...)
}

// toolCalls returns the tool calls in text[from:] and all pieces of it in their order. If there is
// no call or one is malformed, ok is false.
func toolCalls(text string, from int) (calls []parsedCall, pieces []piece, ok bool) {
	start := from // of the text after the last call
	for i, m := range calledTool.FindAllStringSubmatchIndex(text[from:], -1) {
		var call struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		}
		at := from + m[2]
		raw := text[at : from+m[3]]
		if json.Unmarshal([]byte(raw), &call) != nil || call.Name == "" {
			return nil, nil, false
		}
		arguments := string(call.Arguments)
		pieces = append(pieces,
			piece{contentPiece, 0, start, text[start : from+m[0]]},
			piece{namePiece, i, at, call.Name},
			piece{argumentsPiece, i, at + max(0, strings.LastIndex(raw, arguments)), arguments},
		)
		calls = append(calls, parsedCall{name: call.Name, arguments: arguments})
		start = from + m[1]
	}
	return calls, append(pieces, piece{contentPiece, 0, start, text[start:]}), len(calls) > 0
}

// trimmed removes the white space around a text that begins at a position.
func trimmed(text string, at int) (string, int) {
	left := strings.TrimLeft(text, " \t\r\n")
	return strings.TrimRight(left, " \t\r\n"), at + len(text) - len(left)
}

// seen returns how much of the piece a client has seen when the model has sampled n bytes of text.
// The result never splits a character.
func (p *parsed) seen(c *piece, n int) int {
	if n >= p.length {
		return len(c.text)
	}
	if c.kind == namePiece { // a name appears as a whole
		if n >= c.at+len(c.text) {
			return len(c.text)
		}
		return 0
	}
	k := min(max(n-c.at, 0), len(c.text))
	for k > 0 && k < len(c.text) && !utf8.RuneStart(c.text[k]) {
		k--
	}
	return k
}
