package chat

import (
	"strings"
)

func (p *parser) postfix(e expr) (expr, error) {
	for {
		if err := p.countOp(); err != nil {
			return nil, err
		}
		var err error
		switch {
		case p.isOp("."):
			p.skip()
			t := p.next()
			switch t.kind {
			case tokName:
				e = newAttr(e, t.text)
			case tokInt:
				key, err := p.intLiteral(t)
				if err != nil {
					return nil, err
				}
				e = &itemExpr{e, key}
			default:
				return nil, p.failf(t.line, "expected a name or a number, got %s", t.describe())
			}
		case p.isOp("["):
			e, err = p.subscript(e)
		case p.isOp("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) subscript(of expr) (expr, error) {
	line := p.next().line
	var keys []expr
	var slice *sliceExpr // the last slice among the keys
	for n := 0; !p.isOp("]"); n++ {
		if n > 0 {
			if _, err := p.expect(tokOp, ","); err != nil {
				return nil, err
			}
		}
		key, s, err := p.subscribed(of)
		if err != nil {
			return nil, err
		}
		if s != nil {
			slice, key = s, s
		}
		keys = append(keys, key)
	}
	p.skip()
	switch {
	case len(keys) == 1 && slice != nil:
		return slice, nil
	case slice != nil:
		return nil, p.unsupportedf(line, "a slice in a subscript of several keys")
	case len(keys) == 1:
		return &itemExpr{of, keys[0]}, nil
	}
	return &itemExpr{of, &tupleExpr{keys}}, nil
}

// subscribed parses one key of a subscript: an expression, or a slice of the value before the
// bracket. A slice inside a key, as in x['ab'[:1]], is an expression.
func (p *parser) subscribed(of expr) (expr, *sliceExpr, error) {
	s := &sliceExpr{of: of}
	var err error
	if !p.isOp(":") {
		if s.start, err = p.expression(true); err != nil || !p.isOp(":") {
			return s.start, nil, err
		}
	}
	p.skip()
	if !p.isOp(":") && !p.isOp("]") && !p.isOp(",") {
		if s.stop, err = p.expression(true); err != nil {
			return nil, nil, err
		}
	}
	if p.skipOp(":") && !p.isOp("]") && !p.isOp(",") {
		if s.step, err = p.expression(true); err != nil {
			return nil, nil, err
		}
	}
	return nil, s, nil
}

func (p *parser) call(fn expr) (*callExpr, error) {
	c := &callExpr{fn: fn, line: p.next().line}
	for n := 0; !p.isOp(")"); n++ {
		if n > 0 {
			if _, err := p.expect(tokOp, ","); err != nil {
				return nil, err
			}
			if p.isOp(")") {
				break
			}
		}
		var err error
		switch {
		case p.isOp("*"), p.isOp("**"):
			return nil, p.unsupportedf(c.line, "a call with %s before an argument", p.cur().text)
		case p.cur().kind == tokName && p.peek().kind == tokOp && p.peek().text == "=":
			name := p.next().text
			p.skip()
			for _, k := range c.kwargs {
				if k.name == name {
					return nil, p.failf(c.line, "duplicate argument '%s'", name)
				}
			}
			var e expr
			e, err = p.expression(true)
			c.kwargs = append(c.kwargs, kwarg{name, e})
		default:
			if c.kwargs != nil {
				return nil, p.failf(c.line, "invalid order of call arguments")
			}
			var e expr
			e, err = p.expression(true)
			c.args = append(c.args, e)
		}
		if err != nil {
			return nil, err
		}
	}
	p.skip()
	return c, nil
}

// filterChain parses the filters, tests and calls after an expression.
func (p *parser) filterChain(e expr) (expr, error) {
	for {
		if err := p.countOp(); err != nil {
			return nil, err
		}
		var err error
		switch {
		case p.isOp("|"):
			e, err = p.filters(e, false)
		case p.isName("is"):
			e, err = p.test(e)
		case p.isOp("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// filters parses a sequence of filters. If inline is set, no bar precedes the first one.
func (p *parser) filters(e expr, inline bool) (expr, error) {
	for p.isOp("|") || inline {
		if err := p.countOp(); err != nil {
			return nil, err
		}
		if !inline {
			p.skip()
		}
		inline = false
		name, line, err := p.dotted()
		if err != nil {
			return nil, err
		}
		f := &filterExpr{of: e, name: name, line: line}
		if p.isOp("(") {
			if f.call, err = p.call(nil); err != nil {
				return nil, err
			}
		}
		e = f
	}
	return e, nil
}

func (p *parser) dotted() (string, int, error) {
	t, err := p.expect(tokName, "")
	if err != nil {
		return "", 0, err
	}
	var name strings.Builder
	name.WriteString(t.text)
	for p.skipOp(".") {
		part, err := p.expect(tokName, "")
		if err != nil {
			return "", 0, err
		}
		name.WriteString("." + part.text)
	}
	return name.String(), t.line, nil
}

func (p *parser) test(of expr) (expr, error) {
	p.skip()
	negated := p.skipName("not")
	name, line, err := p.dotted()
	if err != nil {
		return nil, err
	}
	t := &testExpr{of: of, name: name, line: line}
	switch c := p.cur(); {
	case p.isOp("("):
		t.call, err = p.call(nil)
	case p.isName("is"):
		err = p.failf(c.line, "tests cannot be chained")
	case c.kind == tokString, c.kind == tokInt, c.kind == tokFloat, p.isOp("["), p.isOp("{"),
		c.kind == tokName && c.text != "else" && c.text != "or" && c.text != "and":
		var arg expr
		if arg, err = p.primary(false); err == nil {
			arg, err = p.postfix(arg)
		}
		t.call = &callExpr{args: []expr{arg}, line: c.line}
	}
	if err != nil {
		return nil, err
	}
	if negated {
		return &notExpr{t}, nil
	}
	return t, nil
}
