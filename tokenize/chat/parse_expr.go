package chat

import (
	"slices"
	"strconv"
	"strings"
)

type tupleOpts struct {
	simple    bool // names and literals only
	cond      bool // allow conditional expressions without parentheses
	parens    bool // inside parentheses, so an empty tuple is allowed
	namespace bool
}

// An nsRef is name.attr on the left of an assignment. Only the parser uses it.
type nsRef struct {
	constExpr
	name, attr string
}

// tuple parses an expression, or several expressions that are separated by commas.
func (p *parser) tuple(o tupleOpts) expr {
	p.enter()
	defer p.leave()
	var items []expr
	isTuple := false
	for {
		t := p.cur()
		if t.kind == tokVarEnd || t.kind == tokBlockEnd || p.isOp(")") {
			break // Jinja does not stop at "in" or "recursive" here: after a comma, it reads them as names
		}
		if o.simple {
			items = append(items, p.primary(o.namespace))
		} else {
			items = append(items, p.expression(o.cond || o.parens))
		}
		if !p.skipOp(",") {
			break
		}
		isTuple = true
	}
	if isTuple || len(items) == 0 && o.parens {
		return &seqExpr{Tuple, items}
	}
	if len(items) == 0 {
		p.failf(p.cur().line, "expected an expression, got %s", p.cur().describe())
		return nil
	}
	return items[0]
}

func (p *parser) expression(cond bool) expr {
	p.enter()
	defer p.leave()
	e := p.or()
	for cond && p.skipName("if") {
		p.countOp()
		c := &condExpr{then: e, test: p.or()}
		if p.skipName("else") {
			c.els = p.expression(true)
		}
		e = c
	}
	return e
}

func (p *parser) or() expr {
	a := p.and()
	for p.skipName("or") {
		p.countOp()
		a = &boolExpr{a, p.and(), true}
	}
	return a
}

func (p *parser) and() expr {
	a := p.not()
	for p.skipName("and") {
		p.countOp()
		a = &boolExpr{a, p.not(), false}
	}
	return a
}

func (p *parser) not() expr {
	if !p.isName("not") {
		return p.compare()
	}
	p.enter()
	defer p.leave()
	p.skip()
	return &notExpr{p.not()}
}

func (p *parser) compare() expr {
	e := &compareExpr{values: []expr{p.sum()}}
	for {
		line := p.cur().line
		op, ok := p.comparison()
		switch {
		case ok:
			e.ops, e.values, e.lines = append(e.ops, op), append(e.values, p.sum()), append(e.lines, line)
			p.countOp()
		case e.ops == nil:
			return e.values[0]
		default:
			return e
		}
	}
}

var comparisons = map[string]binop{"==": cmpEq, "!=": cmpNe, "<": cmpLt, "<=": cmpLe, ">": cmpGt, ">=": cmpGe}

// comparison skips the next token if it is a comparison operator, and returns the operator.
func (p *parser) comparison() (binop, bool) {
	t := p.cur()
	if op, ok := comparisons[t.text]; ok && t.kind == tokOp {
		p.skip()
		return op, true
	}
	if p.isName("not") && p.peek() == (token{tokName, "in", p.peek().line}) {
		p.skip()
		p.skip()
		return cmpNotIn, true
	}
	return cmpIn, p.skipName("in")
}

func (p *parser) sum() expr {
	a := p.concat()
	for {
		line := p.cur().line
		switch {
		case p.skipOp("-"):
			a = &binaryExpr{opSub, a, p.concat(), line}
		case p.skipOp("+"):
			b := p.concat()
			if sum, ok := a.(*sumExpr); ok {
				sum.terms, sum.lines = append(sum.terms, b), append(sum.lines, line)
			} else {
				a = &sumExpr{[]expr{a, b}, []int{line}}
			}
		default:
			return a
		}
		p.countOp()
	}
}

func (p *parser) concat() expr {
	a := p.product()
	if !p.isOp("~") {
		return a
	}
	c := &concatExpr{parts: []expr{a}}
	for p.skipOp("~") {
		c.parts = append(c.parts, p.product())
	}
	return c
}

func (p *parser) product() expr {
	a := p.unary(true)
	for {
		t := p.cur()
		op := slices.Index(opNames[:], t.text)
		switch {
		case p.isOp("**"):
			p.unsupportedf(t.line, "the operator **")
			return a
		case t.kind != tokOp || op < int(opMul):
			return a
		case binop(op) == opMod && isText(a):
			p.unsupportedf(t.line, "the operator %% on a string")
		}
		p.skip()
		a = &binaryExpr{binop(op), a, p.unary(true), t.line}
		p.countOp()
	}
}

func isText(e expr) bool {
	c, ok := e.(*constExpr)
	return ok && c.v.isStr()
}

func (p *parser) unary(filters bool) expr {
	var e expr
	switch {
	case p.isOp("-"), p.isOp("+"):
		p.enter()
		op := slices.Index(opNames[:], p.next().text)
		e = &signExpr{binop(op), p.unary(false)}
		p.leave()
	default:
		e = p.primary(false)
	}
	if e = p.postfix(e); filters {
		return p.filterChain(e)
	}
	return e
}

func (p *parser) primary(namespace bool) expr {
	t := p.next()
	switch t.kind {
	case tokName:
		if i := slices.Index(constants, t.text); i >= 0 {
			return &constExpr{[]Value{BoolValue(true), BoolValue(false), NoneValue()}[i%3]}
		}
		if !namespace || !p.skipOp(".") {
			return &nameExpr{name: t.text, line: t.line}
		}
		attr := p.expect(tokName, "").text
		if strings.HasPrefix(attr, "_") {
			p.unsupportedf(t.line, "the attribute '%s' of a namespace", attr)
		}
		return &nsRef{name: t.text, attr: attr}
	case tokString:
		parts := []string{t.text}
		for p.cur().kind == tokString {
			parts = append(parts, p.next().text)
		}
		return &constExpr{strOf(strings.Join(parts, ""))}
	case tokInt:
		return p.intLiteral(t)
	case tokFloat:
		f, _ := strconv.ParseFloat(t.text, 64) // a number that is out of range becomes ±Inf, as in Python
		return &constExpr{FloatValue(f)}
	case tokOp:
		switch t.text {
		case "(":
			e := p.tuple(tupleOpts{parens: true})
			p.expect(tokOp, ")")
			return e
		case "[":
			l := &seqExpr{kind: List}
			for p.more(len(l.items), "]") {
				l.items = append(l.items, p.expression(true))
			}
			return l
		case "{":
			d := &dictExpr{}
			for p.more(len(d.keys), "}") {
				d.keys = append(d.keys, p.expression(true))
				p.expect(tokOp, ":")
				d.vals = append(d.vals, p.expression(true))
			}
			return d
		}
	}
	p.failf(t.line, "unexpected %s", t.describe())
	return nil
}

func (p *parser) intLiteral(t token) expr {
	n, err := strconv.ParseInt(t.text, 10, 64)
	if err != nil {
		p.unsupportedf(t.line, "an int of more than 64 bits")
	}
	return &constExpr{IntValue(n)}
}

// countOp counts one operator, postfix or filter in a tag. A long sequence of these makes the tree
// deep even if nothing is nested in the source.
func (p *parser) countOp() {
	if p.ops++; p.ops > maxTagOps {
		p.fail(p.cur().line, limitErrorf("more than %d operators in one tag", maxTagOps))
	}
}

// maxTagOps limits the number of operators in one tag. The largest known tag has about a hundred
// operators.
const maxTagOps = 5000
