package chat

import (
	"math/big"
	"strconv"
	"strings"
)

type tupleOpts struct {
	simple    bool // names and literals only
	cond      bool // allow conditional expressions without parentheses
	parens    bool // inside parentheses, so an empty tuple is allowed
	namespace bool
}

// A nsRef is name.attr on the left of an assignment. Only the parser uses it.
type nsRef struct {
	constExpr
	name, attr string
}

// tuple parses an expression, or several separated by commas.
func (p *parser) tuple(o tupleOpts) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var items []expr
	isTuple := false
	for {
		if len(items) > 0 {
			if _, err := p.expect(tokOp, ","); err != nil {
				return nil, err
			}
		}
		t := p.cur()
		if t.kind == tokVarEnd || t.kind == tokBlockEnd || p.isOp(")") {
			break // after a comma, Jinja reads the words in and recursive as names
		}
		var e expr
		var err error
		if o.simple {
			e, err = p.primary(o.namespace)
		} else {
			e, err = p.expression(o.cond || o.parens)
		}
		if err != nil {
			return nil, err
		}
		items = append(items, e)
		if !p.isOp(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) > 0 {
			return items[0], nil
		}
		if !o.parens {
			return nil, p.failf(p.cur().line, "expected an expression, got %s", p.cur().describe())
		}
	}
	return &tupleExpr{items}, nil
}

func (p *parser) expression(cond bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	e, err := p.or()
	if err != nil || !cond {
		return e, err
	}
	for p.skipName("if") {
		if err := p.countOp(); err != nil {
			return nil, err
		}
		c := &condExpr{then: e}
		if c.test, err = p.or(); err != nil {
			return nil, err
		}
		if p.skipName("else") {
			if c.els, err = p.expression(true); err != nil {
				return nil, err
			}
		}
		e = c
	}
	return e, nil
}

func (p *parser) or() (expr, error) {
	a, err := p.and()
	for err == nil && p.skipName("or") {
		var b expr
		if b, err = p.and(); err == nil {
			err = p.countOp()
		}
		a = &orExpr{a, b}
	}
	return a, err
}

func (p *parser) and() (expr, error) {
	a, err := p.not()
	for err == nil && p.skipName("and") {
		var b expr
		if b, err = p.not(); err == nil {
			err = p.countOp()
		}
		a = &andExpr{a, b}
	}
	return a, err
}

func (p *parser) not() (expr, error) {
	if !p.isName("not") {
		return p.compare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	p.skip()
	e, err := p.not()
	return &notExpr{e}, err
}

func (p *parser) compare() (expr, error) {
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	var c *compareExpr
	for {
		op, n := p.comparison()
		if n == 0 {
			break
		}
		for range n {
			p.skip()
		}
		e, err := p.sum()
		if err != nil {
			return nil, err
		}
		if c == nil {
			c = &compareExpr{first: first}
		}
		c.ops = append(c.ops, op)
		c.rest = append(c.rest, e)
	}
	if c == nil {
		return first, nil
	}
	return c, nil
}

// comparison returns the operator at the cursor and the number of its tokens, 0 for none.
func (p *parser) comparison() (cmpop, int) {
	switch t := p.cur(); {
	case t.kind == tokOp:
		switch t.text {
		case "==":
			return cmpEq, 1
		case "!=":
			return cmpNe, 1
		case "<":
			return cmpLt, 1
		case "<=":
			return cmpLe, 1
		case ">":
			return cmpGt, 1
		case ">=":
			return cmpGe, 1
		}
	case p.isName("in"):
		return cmpIn, 1
	case p.isName("not") && p.peek().kind == tokName && p.peek().text == "in":
		return cmpNotIn, 2
	}
	return 0, 0
}

func (p *parser) sum() (expr, error) {
	a, err := p.concat()
	for err == nil {
		line := p.cur().line
		var op binop
		switch {
		case p.skipOp("+"):
			op = opAdd
		case p.skipOp("-"):
			op = opSub
		default:
			return a, nil
		}
		var b expr
		if b, err = p.concat(); err == nil {
			err = p.countOp()
		}
		sum, ok := a.(*sumExpr)
		switch {
		case op == opSub:
			a = &binaryExpr{op, a, b, line}
		case ok:
			sum.terms, sum.lines = append(sum.terms, b), append(sum.lines, line)
		default:
			a = &sumExpr{[]expr{a, b}, []int{line}}
		}
	}
	return a, err
}

func (p *parser) concat() (expr, error) {
	a, err := p.product()
	if err != nil || !p.isOp("~") {
		return a, err
	}
	c := &concatExpr{parts: []expr{a}}
	for p.skipOp("~") {
		b, err := p.product()
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, b)
	}
	return c, nil
}

func (p *parser) product() (expr, error) {
	a, err := p.unary(true)
	for err == nil {
		line := p.cur().line
		var op binop
		switch {
		case p.skipOp("*"):
			op = opMul
		case p.skipOp("/"):
			op = opDiv
		case p.skipOp("//"):
			op = opFloorDiv
		case p.isOp("%"):
			if c, ok := a.(*constExpr); ok && c.v.isStr() {
				return nil, p.unsupportedf(line, "the operator %% on a text")
			}
			p.skip()
			op = opMod
		case p.isOp("**"):
			return nil, p.unsupportedf(line, "the operator **")
		default:
			return a, nil
		}
		var b expr
		if b, err = p.unary(true); err == nil {
			err = p.countOp()
		}
		a = &binaryExpr{op, a, b, line}
	}
	return a, err
}

func (p *parser) unary(filters bool) (expr, error) {
	var e expr
	var err error
	switch {
	case p.isOp("-") || p.isOp("+"):
		if err := p.enter(); err != nil {
			return nil, err
		}
		neg := p.next().text == "-"
		e, err = p.unary(false)
		p.leave()
		if neg {
			e = &negExpr{e}
		} else {
			e = &posExpr{e}
		}
	default:
		e, err = p.primary(false)
	}
	if err != nil {
		return nil, err
	}
	if e, err = p.postfix(e); err != nil || !filters {
		return e, err
	}
	return p.filterChain(e)
}

func (p *parser) primary(namespace bool) (expr, error) {
	t := p.cur()
	switch t.kind {
	case tokName:
		p.skip()
		switch t.text {
		case "true", "True":
			return &constExpr{BoolValue(true)}, nil
		case "false", "False":
			return &constExpr{BoolValue(false)}, nil
		case "none", "None":
			return &constExpr{NoneValue()}, nil
		}
		if namespace && p.skipOp(".") {
			attr, err := p.expect(tokName, "")
			return &nsRef{name: t.text, attr: attr.text}, err
		}
		return &nameExpr{name: t.text, line: t.line}, nil
	case tokString:
		p.skip()
		if p.cur().kind != tokString {
			return &constExpr{strOf(t.text)}, nil
		}
		var b strings.Builder
		b.WriteString(t.text)
		for p.cur().kind == tokString {
			b.WriteString(p.next().text)
		}
		return &constExpr{strOf(b.String())}, nil
	case tokInt:
		p.skip()
		return p.intLiteral(t)
	case tokFloat:
		p.skip()
		f, _ := strconv.ParseFloat(t.text, 64) // out of range gives ±Inf, as in Python
		return &constExpr{FloatValue(f)}, nil
	}
	switch {
	case p.isOp("("):
		p.skip()
		e, err := p.tuple(tupleOpts{parens: true})
		if err != nil {
			return nil, err
		}
		_, err = p.expect(tokOp, ")")
		return e, err
	case p.isOp("["):
		return p.list()
	case p.isOp("{"):
		return p.dict()
	}
	return nil, p.failf(t.line, "unexpected %s", t.describe())
}

func (p *parser) intLiteral(t token) (expr, error) {
	text, base := t.text, 10
	if len(text) > 2 && text[0] == '0' {
		switch text[1] | 0x20 {
		case 'x':
			base = 16
		case 'o':
			base = 8
		case 'b':
			base = 2
		}
		if base != 10 {
			text = text[2:]
		}
	}
	if n, err := strconv.ParseInt(text, base, 64); err == nil {
		return &constExpr{IntValue(n)}, nil
	}
	if base == 10 && len(text) > maxIntDigits {
		return nil, p.failf(t.line, "integer of more than %d digits", maxIntDigits)
	}
	n, ok := new(big.Int).SetString(text, base)
	if !ok {
		return nil, p.failf(t.line, "invalid integer %s", t.describe())
	}
	return &constExpr{BigValue(n)}, nil
}

func (p *parser) list() (expr, error) {
	p.skip()
	l := &listExpr{}
	for !p.isOp("]") {
		if len(l.items) > 0 {
			if _, err := p.expect(tokOp, ","); err != nil {
				return nil, err
			}
			if p.isOp("]") {
				break
			}
		}
		e, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, e)
	}
	p.skip()
	return l, nil
}

func (p *parser) dict() (expr, error) {
	p.skip()
	d := &dictExpr{}
	for !p.isOp("}") {
		if len(d.keys) > 0 {
			if _, err := p.expect(tokOp, ","); err != nil {
				return nil, err
			}
			if p.isOp("}") {
				break
			}
		}
		k, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		if _, err := p.expect(tokOp, ":"); err != nil {
			return nil, err
		}
		v, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		d.keys = append(d.keys, k)
		d.vals = append(d.vals, v)
	}
	p.skip()
	return d, nil
}

// countOp counts one operator, postfix or filter of a tag. A sequence of them makes the tree deep
// without any nesting in the source.
func (p *parser) countOp() error {
	if p.ops++; p.ops > maxTagOps {
		p.errLine = p.cur().line
		return limitErrorf("more than %d operators in one tag", maxTagOps)
	}
	return nil
}

// maxTagOps bounds the operators of one tag. The largest known tag has about a hundred.
const maxTagOps = 5000
