package chat

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Parse parses a template. The name is only used in errors.
//
// It returns an *Error. If it wraps ErrUnsupported, it names the unsupported part.
func Parse(name, src string, opts Options) (*Template, error) {
	opts = opts.withDefaults()
	if len(src) > opts.MaxSourceBytes {
		return nil, &Error{Template: name, Err: limitErrorf("source of %d bytes (limit %d)", len(src), opts.MaxSourceBytes)}
	}
	if !utf8.ValidString(src) {
		return nil, &Error{Template: name, Err: fmt.Errorf("source is not valid UTF-8")}
	}
	toks, line, err := lex(src)
	if err != nil {
		return nil, &Error{Template: name, Line: line, Err: err}
	}
	p := &parser{toks: toks, max: opts.MaxNesting}
	body, err := p.statements(nil)
	if err != nil {
		return nil, &Error{Template: name, Line: p.errLine, Err: err}
	}
	t := &Template{name: name, src: src, opts: opts, body: body}
	if line, err := resolveTemplate(t); err != nil {
		return nil, &Error{Template: name, Line: line, Err: err}
	}
	return t, nil
}

type parser struct {
	toks    []token
	i       int
	depth   int
	max     int
	errLine int
	// loops is the number of enclosing loops in the current function. break and continue need one.
	loops int
	// ops is the number of operators in the current tag.
	ops int
}

func (p *parser) cur() token  { return p.toks[p.i] }
func (p *parser) next() token { t := p.toks[p.i]; p.skip(); return t }
func (p *parser) peek() token {
	if p.i+1 < len(p.toks) {
		return p.toks[p.i+1]
	}
	return p.toks[p.i]
}

func (p *parser) skip() {
	if p.i+1 < len(p.toks) {
		p.i++
	}
}

func (p *parser) isOp(op string) bool {
	t := p.toks[p.i]
	return t.kind == tokOp && t.text == op
}

func (p *parser) isName(name string) bool {
	t := p.toks[p.i]
	return t.kind == tokName && t.text == name
}

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.skip()
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.skip()
		return true
	}
	return false
}

func (p *parser) failf(line int, format string, args ...any) error {
	p.errLine = line
	return fmt.Errorf("syntax error: "+format, args...)
}

// unsupportedf returns the error for a part of Jinja that this package does not support.
func (p *parser) unsupportedf(line int, format string, args ...any) error {
	p.errLine = line
	return unsupportedf(format, args...)
}

func (p *parser) expect(k tokenKind, text string) (token, error) {
	t := p.cur()
	if t.kind != k || text != "" && t.text != text {
		want := token{kind: k, text: text}
		if k == tokName && text == "" {
			return t, p.failf(t.line, "expected a name, got %s", t.describe())
		}
		return t, p.failf(t.line, "expected %s, got %s", want.describe(), t.describe())
	}
	p.skip()
	return t, nil
}

func (p *parser) enter() error {
	p.depth++
	if p.depth > p.max {
		p.errLine = p.cur().line
		return limitErrorf("source nests deeper than %d", p.max)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// statements parses up to a tag in ends, and stops at its name. At the top level, ends is nil.
func (p *parser) statements(ends []string) ([]stmt, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var out []stmt
	for {
		t := p.cur()
		switch t.kind {
		case tokEOF:
			if ends != nil {
				return nil, p.failf(t.line, "unexpected end of the template, expected %s", oneOf(ends))
			}
			return out, nil
		case tokData:
			out = append(out, &textStmt{t.text})
			p.skip()
		case tokVarBegin:
			p.ops = 0
			p.skip()
			e, err := p.tuple(tupleOpts{cond: true})
			if err != nil {
				return nil, err
			}
			if _, err := p.expect(tokVarEnd, ""); err != nil {
				return nil, err
			}
			out = append(out, &outStmt{e, t.line})
		case tokBlockBegin:
			p.ops = 0
			p.skip()
			name := p.cur()
			if name.kind == tokName && slices.Contains(ends, name.text) {
				return out, nil
			}
			s, err := p.statement()
			if err != nil {
				return nil, err
			}
			if s != nil {
				out = append(out, s...)
			}
			if _, err := p.expect(tokBlockEnd, ""); err != nil {
				return nil, err
			}
		default:
			return nil, p.failf(t.line, "unexpected %s", t.describe())
		}
	}
}

func oneOf(names []string) string {
	var s strings.Builder
	for i, n := range names {
		if i > 0 {
			s.WriteString(" or ")
		}
		s.WriteString(n)
	}
	return s.String()
}

// body parses the end of an opening tag and its statements. It returns the closing tag's name.
func (p *parser) body(ends ...string) ([]stmt, string, error) {
	p.skipOp(":")
	if _, err := p.expect(tokBlockEnd, ""); err != nil {
		return nil, "", err
	}
	b, err := p.statements(ends)
	if err != nil {
		return nil, "", err
	}
	return b, p.next().text, nil
}

func (p *parser) statement() ([]stmt, error) {
	t := p.cur()
	if t.kind != tokName {
		return nil, p.failf(t.line, "expected the name of a tag, got %s", t.describe())
	}
	one := func(s stmt, err error) ([]stmt, error) {
		if err != nil {
			return nil, err
		}
		return []stmt{s}, nil
	}
	switch t.text {
	case "for":
		return one(p.forLoop())
	case "if":
		return one(p.ifBlock())
	case "set":
		return one(p.set())
	case "macro":
		return one(p.macro())
	case "filter":
		return one(p.filterBlock())
	case "with":
		return one(p.with())
	case "print":
		return p.print()
	case "generation":
		p.skip()
		m := &macroBody{name: "generation", line: t.line}
		var err error
		m.body, err = p.function("endgeneration")
		return one(&genStmt{m}, err)
	case "break", "continue":
		p.skip()
		if p.loops == 0 {
			return nil, p.failf(t.line, "'%s' outside of a loop", t.text)
		}
		if t.text == "break" {
			return one(breakStmt{}, nil)
		}
		return one(continueStmt{}, nil)
	case "block", "call", "extends", "include", "import", "from", "autoescape":
		return nil, p.unsupportedf(t.line, "tag '%s'", t.text)
	}
	return nil, p.failf(t.line, "unknown tag '%s'", t.text)
}

// function parses the body of a function. A break inside cannot leave a loop outside.
func (p *parser) function(end string) ([]stmt, error) {
	loops := p.loops
	p.loops = 0
	b, _, err := p.body(end)
	p.loops = loops
	return b, err
}

func (p *parser) forLoop() (stmt, error) {
	f := &forStmt{line: p.next().line}
	var err error
	if f.target, err = p.target(tupleOpts{}); err != nil {
		return nil, err
	}
	if _, err = p.expect(tokName, "in"); err != nil {
		return nil, err
	}
	if f.iter, err = p.tuple(tupleOpts{}); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if f.test, err = p.expression(true); err != nil {
			return nil, err
		}
	}
	if p.isName("recursive") {
		return nil, p.unsupportedf(f.line, "a recursive loop")
	}
	p.loops++
	var end string
	f.body, end, err = p.body("endfor", "else")
	p.loops--
	if err == nil && end == "else" {
		f.els, _, err = p.body("endfor")
	}
	return f, err
}

func (p *parser) ifBlock() (stmt, error) {
	top := &ifStmt{line: p.next().line}
	for at := top; ; {
		var err error
		if at.test, err = p.tuple(tupleOpts{}); err != nil {
			return nil, err
		}
		var end string
		if at.body, end, err = p.body("elif", "else", "endif"); err != nil {
			return nil, err
		}
		switch end {
		case "elif":
			at = &ifStmt{line: p.cur().line}
			top.alts = append(top.alts, at)
			continue
		case "else":
			top.els, _, err = p.body("endif")
		}
		return top, err
	}
}

func (p *parser) set() (stmt, error) {
	line := p.next().line
	tg, err := p.target(tupleOpts{namespace: true})
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		e, err := p.tuple(tupleOpts{cond: true})
		return &setStmt{tg, e, line}, err
	}
	s := &setBlockStmt{target: tg, line: line}
	if s.filter, err = p.filters(nil, false); err != nil {
		return nil, err
	}
	s.body, _, err = p.body("endset")
	return s, err
}

func (p *parser) macro() (stmt, error) {
	m := &macroBody{line: p.next().line}
	name, err := p.expect(tokName, "")
	if err != nil {
		return nil, err
	}
	m.name = name.text
	if !assignable(m.name) {
		return nil, p.failf(name.line, "cannot assign to '%s'", m.name)
	}
	if err := p.signature(m); err != nil {
		return nil, err
	}
	m.body, err = p.function("endmacro")
	return &macroStmt{macroBody: m}, err
}

func (p *parser) signature(m *macroBody) error {
	if _, err := p.expect(tokOp, "("); err != nil {
		return err
	}
	defaults := false
	for !p.isOp(")") {
		if err := p.countOp(); err != nil {
			return err
		}
		if len(m.params) > 0 {
			if _, err := p.expect(tokOp, ","); err != nil {
				return err
			}
		}
		t, err := p.expect(tokName, "")
		if err != nil {
			return err
		}
		if !assignable(t.text) {
			return p.failf(t.line, "cannot assign to '%s'", t.text)
		}
		for _, q := range m.params {
			if q.name == t.text {
				return p.failf(t.line, "duplicate parameter '%s'", t.text)
			}
		}
		a := param{name: t.text, line: t.line}
		if p.skipOp("=") {
			defaults = true
			if a.def, err = p.expression(true); err != nil {
				return err
			}
		} else if defaults {
			return p.failf(t.line, "parameter '%s' without a default follows a parameter with a default", t.text)
		}
		m.params = append(m.params, a)
	}
	p.skip()
	return nil
}

func (p *parser) filterBlock() (stmt, error) {
	f := &filterStmt{line: p.next().line}
	var err error
	if f.filter, err = p.filters(nil, true); err != nil {
		return nil, err
	}
	f.body, _, err = p.body("endfilter")
	return f, err
}

func (p *parser) with() (stmt, error) {
	w := &withStmt{line: p.next().line}
	for p.cur().kind != tokBlockEnd {
		if len(w.targets) > 0 {
			if _, err := p.expect(tokOp, ","); err != nil {
				return nil, err
			}
		}
		tg, err := p.target(tupleOpts{})
		if err != nil {
			return nil, err
		}
		if _, err := p.expect(tokOp, "="); err != nil {
			return nil, err
		}
		e, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		w.targets = append(w.targets, tg)
		w.values = append(w.values, e)
	}
	var err error
	w.body, _, err = p.body("endwith")
	return w, err
}

func (p *parser) print() ([]stmt, error) {
	line := p.next().line
	var out []stmt
	for p.cur().kind != tokBlockEnd {
		if len(out) > 0 {
			if _, err := p.expect(tokOp, ","); err != nil {
				return nil, err
			}
		}
		e, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		out = append(out, &outStmt{e, line})
	}
	return out, nil
}

func assignable(name string) bool {
	switch name {
	case "true", "false", "none", "True", "False", "None":
		return false
	}
	return true
}

// target parses an assignment target: a name, a tuple, or, if allowed, a namespace attribute.
func (p *parser) target(o tupleOpts) (target, error) {
	line := p.cur().line
	o.simple = true
	e, err := p.tuple(o)
	if err != nil {
		return target{}, err
	}
	return p.asTarget(e, line)
}

func (p *parser) asTarget(e expr, line int) (target, error) {
	switch e := e.(type) {
	case *nameExpr:
		return target{name: e.name, line: e.line}, nil
	case *nsRef:
		return target{name: e.name, attr: e.attr, line: line}, nil
	case *tupleExpr:
		t := target{tuple: true, line: line}
		for _, x := range e.items {
			part, err := p.asTarget(x, line)
			if err != nil {
				return t, err
			}
			t.parts = append(t.parts, part)
		}
		return t, nil
	}
	return target{}, p.failf(line, "cannot assign to this expression")
}
