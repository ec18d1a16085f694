package messages

import (
	"net/http"
	"slices"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// Dialect is Anthropic's Messages API.
type Dialect struct{}

var _ translate.Dialect = Dialect{}

// Name returns "messages".
func (Dialect) Name() string { return "messages" }

// Tables returns the rules for the members of a request.
func (Dialect) Tables() []translate.Table {
	out := make([]translate.Table, len(tables))
	for i, t := range tables {
		out[i] = *t
	}
	return out
}

// Request translates the body of a request to create a message.
func (Dialect) Request(body []byte) (*translate.Call, error) { return request(body, true) }

// Count translates the body of a request to count tokens. It is like Request, but max_tokens can be
// absent. The tokens of the chat completion's prompt are the tokens to count.
func (Dialect) Count(body []byte) (*translate.Call, error) { return request(body, false) }

func request(body []byte, limited bool) (*translate.Call, error) {
	// A message grows by a few bytes.
	p := parser{out: make([]byte, 0, len(body)+len(body)/8+512)}
	p.s.Reset(string(body), strictjson.Options{HalfPairs: true})
	p.request()
	switch {
	case p.s.Err() != nil:
	case !p.model:
		p.s.Fail("model is missing")
	case p.chatAt == 0:
		p.s.Fail("messages is missing")
	case limited && !p.limit:
		p.s.Fail("max_tokens is missing")
	}
	if err := p.s.End(); err != nil {
		return nil, &translate.Error{Status: http.StatusBadRequest, Code: "bad_request", Message: err.Error()}
	}
	return &translate.Call{Chat: p.out, Streamed: p.streamed, Reply: reply{}}, nil
}

// A parser translates one request.
type parser struct {
	s   strictjson.Scanner
	out []byte

	// system contains the texts in the member system, as JSON strings. chatAt is the position of the
	// first message in out, or 0.
	system []string
	chatAt int

	model, limit, streamed bool
	turn
}

func (p *parser) request() {
	p.raw("{")
	p.members(requestTable, func(name string) {
		switch name {
		case "messages":
			p.member(name)
			p.messages()
		case "model":
			p.model = true
			p.member(name)
			p.raw(p.text())
		case "max_tokens":
			p.limit = true
			p.maxTokens(name)
		case "temperature", "top_p":
			p.member(name)
			p.raw(p.s.Number())
		case "top_k":
			p.member(name)
			p.integer()
		case "stop_sequences":
			p.member("stop")
			from := p.s.Offset()
			for range p.s.Elements {
				p.text()
			}
			p.raw(p.s.Since(from))
		case "stream":
			p.streamed = p.s.Bool()
		default:
			p.config(name)
		}
	})
	p.raw("}")
	if p.s.Err() == nil && len(p.system) > 0 && p.chatAt > 0 {
		system := append([]byte(nil), `{"role":"system","content":`...)
		system = append(join(system, p.system), "},"...)
		p.out = slices.Insert(p.out, p.chatAt, system...)
	}
}

func (p *parser) config(name string) {
	switch name {
	case "system":
		p.systemTexts()
	case "tools":
		p.tools()
	case "tool_choice":
		p.choice()
	case "thinking":
		p.thinking()
	case "output_config":
		p.outputConfig()
	case "context_management":
		p.context()
	}
}

func (p *parser) maxTokens(name string) {
	at := p.s.Offset()
	p.member(name)
	if p.integer() < 1 {
		p.s.FailAt(at, "want a number of at least 1")
	}
}

func (p *parser) integer() int64 {
	from := p.s.Offset()
	n := p.s.Int(64)
	p.raw(p.s.Since(from))
	return n
}

// systemTexts reads the member system. The first block that Claude Code sends is a header for the
// vendor.
func (p *parser) systemTexts() {
	const header = `"x-anthropic-billing-header:`
	p.content(systemBlocks, func(string) { p.textBlock() })
	for _, x := range p.pieces {
		if len(x.text) < len(header) || x.text[:len(header)] != header {
			p.system = append(p.system, x.text)
		}
	}
	p.pieces = p.pieces[:0]
}
