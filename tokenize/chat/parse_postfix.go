package chat

import (
	"slices"
	"strings"
)

func (p *parser) postfix(e expr) expr {
	for {
		p.countOp()
		switch {
		case p.skipOp("."):
			t := p.next()
			switch {
			case t.kind == tokInt:
				e = &itemExpr{e, p.intLiteral(t)}
			case t.kind != tokName:
				p.failf(t.line, "expected a name or a number, got %s", t.describe())
			case strings.HasPrefix(t.text, "__"):
				p.unsupportedf(t.line, "attribute '%s'", t.text)
			default:
				e = newAttr(e, t.text)
			}
		case p.isOp("["):
			e = p.subscript(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) subscript(of expr) expr {
	line := p.next().line
	s := &sliceExpr{of: of}
	if p.isOp("]") {
		p.unsupportedf(line, "a subscript without a key")
	}
	if !p.isOp(":") {
		s.start = p.expression(true)
	}
	slice := p.skipOp(":")
	if slice && !p.isOp(":") && !p.isOp("]") {
		s.stop = p.expression(true)
	}
	if slice && p.skipOp(":") && !p.isOp("]") {
		if s.start == nil && s.stop == nil && p.skipOp("-") {
			t := p.next()
			s.reverse = t.kind == tokInt && t.text == "1"
		}
		if !s.reverse || !p.isOp("]") {
			p.unsupportedf(line, "a slice with a step other than [::-1]")
		}
	}
	if p.isOp(",") {
		p.unsupportedf(line, "a subscript with several keys")
	}
	p.expect(tokOp, "]")
	if slice {
		return s
	}
	return &itemExpr{of, s.start}
}

func (p *parser) call(fn expr) *callExpr {
	c := &callExpr{fn: fn, line: p.next().line}
	for p.more(len(c.args)+len(c.kwargs), ")") {
		switch {
		case p.isOp("*"), p.isOp("**"):
			p.unsupportedf(c.line, "a call with %s before an argument", p.cur().text)
		case p.cur().kind == tokName && p.peek().kind == tokOp && p.peek().text == "=":
			name := p.next().text
			p.skip()
			if slices.ContainsFunc(c.kwargs, func(k kwarg) bool { return k.name == name }) {
				p.failf(c.line, "duplicate argument '%s'", name)
			}
			c.kwargs = append(c.kwargs, kwarg{name, p.expression(true)})
		default:
			if c.kwargs != nil {
				p.failf(c.line, "invalid order of call arguments")
			}
			c.args = append(c.args, p.expression(true))
		}
	}
	return c
}

// filterChain parses the filters, tests and calls after an expression.
func (p *parser) filterChain(e expr) expr {
	for {
		p.countOp()
		switch {
		case p.isOp("|"):
			e = p.filters(e, false)
		case p.skipName("is"):
			e = p.test(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

// filters parses a sequence of filters and applies them to e. If inline is true, no bar precedes
// the first filter. If there is no filter, it returns e itself.
func (p *parser) filters(e expr, inline bool) expr {
	for inline || p.skipOp("|") {
		inline = false
		p.countOp()
		f := &applyExpr{of: e, kind: "filter"}
		if f.name, f.line = p.dotted(); p.isOp("(") {
			f.call = p.call(nil)
		}
		e = f
	}
	return e
}

func (p *parser) dotted() (string, int) {
	t := p.expect(tokName, "")
	parts := []string{t.text}
	for p.skipOp(".") {
		parts = append(parts, p.expect(tokName, "").text)
	}
	return strings.Join(parts, "."), t.line
}

func (p *parser) test(of expr) expr {
	negated := p.skipName("not")
	t := &applyExpr{of: of, kind: "test"}
	t.name, t.line = p.dotted()
	switch c := p.cur(); {
	case p.isOp("("):
		t.call = p.call(nil)
	case p.isName("is"):
		p.failf(c.line, "tests cannot be chained")
	case c.kind == tokString, c.kind == tokInt, c.kind == tokFloat, p.isOp("["), p.isOp("{"),
		c.kind == tokName && c.text != "else" && c.text != "or" && c.text != "and":
		t.call = &callExpr{args: []expr{p.postfix(p.primary(false))}, line: c.line}
	}
	if negated {
		return &notExpr{t}
	}
	return t
}
