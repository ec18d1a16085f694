package chat

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Parse parses a template. The name is used only in errors.
//
// The error is an *Error. If it wraps ErrUnsupported, its message names the unsupported part.
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
	t := &Template{name: name, src: src, opts: opts, body: p.statements()}
	if p.err == nil {
		p.errLine, p.err = resolveTemplate(t)
	}
	if p.err != nil {
		return nil, &Error{Template: name, Line: p.errLine, Err: p.err}
	}
	return t, nil
}

// A parser keeps its first error and then moves to the end of the template, so that all its loops
// end. The caller must not use the tree after an error.
type parser struct {
	toks    []token
	i       int
	depth   int
	max     int
	err     error
	errLine int
	// loops is the number of enclosing loops in the current function. If it is 0, break and
	// continue are errors.
	loops int
	// ops is the number of operators in the current tag.
	ops int
}

func (p *parser) cur() token  { return p.toks[p.i] }
func (p *parser) next() token { t := p.toks[p.i]; p.skip(); return t }
func (p *parser) peek() token { return p.toks[min(p.i+1, len(p.toks)-1)] }

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
	found := p.isOp(op)
	if found {
		p.skip()
	}
	return found
}

func (p *parser) skipName(name string) bool {
	found := p.isName(name)
	if found {
		p.skip()
	}
	return found
}

func (p *parser) fail(line int, err error) {
	if p.err == nil {
		p.err, p.errLine = err, line
	}
	p.toks, p.i = []token{{kind: tokEOF, line: line}}, 0
}

func (p *parser) failf(line int, format string, args ...any) {
	p.fail(line, fmt.Errorf("syntax error: "+format, args...))
}

// unsupportedf sets the error for a part of Jinja that this package does not support.
func (p *parser) unsupportedf(line int, format string, args ...any) {
	p.fail(line, unsupportedf(format, args...))
}

// expect skips the next token, which must be of kind k. If text is not empty, the token must also
// have this text.
func (p *parser) expect(k tokenKind, text string) token {
	t := p.cur()
	if t.kind == k && (text == "" || t.text == text) {
		return p.next()
	}
	want := token{kind: k, text: text}.describe()
	if k == tokName && text == "" {
		want = "a name"
	}
	p.failf(t.line, "expected %s, got %s", want, t.describe())
	return t
}

func (p *parser) enter() {
	if p.depth++; p.depth > p.max {
		p.fail(p.cur().line, limitErrorf("the template nests deeper than %d levels", p.max))
	}
}

func (p *parser) leave() { p.depth-- }

// The method more reports whether a list has another element after the first n elements. It skips
// the comma before the element, or the token that ends the list. A comma is allowed before that
// token.
func (p *parser) more(n int, end string) bool {
	if n > 0 && !p.isOp(end) {
		p.expect(tokOp, ",")
	}
	return !p.skipOp(end) && p.err == nil
}

// statements parses up to a tag whose name is in ends, and stops at that name. At the top level,
// ends is empty.
func (p *parser) statements(ends ...string) []stmt {
	p.enter()
	defer p.leave()
	var out []stmt
	for {
		t := p.cur()
		switch t.kind {
		case tokEOF:
			if len(ends) > 0 {
				p.failf(t.line, "unexpected end of the template, expected %s", strings.Join(ends, " or "))
			}
			return out
		case tokData:
			out = append(out, &textStmt{t.text})
			p.skip()
		case tokVarBegin:
			p.ops = 0
			p.skip()
			out = append(out, &outStmt{p.tuple(tupleOpts{cond: true}), t.line})
			p.expect(tokVarEnd, "")
		case tokBlockBegin:
			p.ops = 0
			p.skip()
			name := p.cur()
			if name.kind == tokName && slices.Contains(ends, name.text) {
				return out
			}
			out = append(out, p.statement())
			p.expect(tokBlockEnd, "")
		default:
			p.failf(t.line, "unexpected %s", t.describe())
		}
	}
}

// body parses the end of an opening tag, the statements of the block and the name in the closing
// tag. It returns the statements and the name.
func (p *parser) body(ends ...string) ([]stmt, string) {
	p.skipOp(":")
	p.expect(tokBlockEnd, "")
	b := p.statements(ends...)
	return b, p.next().text
}

func (p *parser) statement() stmt {
	t := p.cur()
	if t.kind != tokName {
		p.failf(t.line, "expected the name of a tag, got %s", t.describe())
		return nil
	}
	p.skip()
	switch t.text {
	case "for":
		return p.forLoop(t.line)
	case "if":
		return p.ifBlock(t.line)
	case "set":
		return p.set(t.line)
	case "macro":
		m := p.signature(t.line)
		m.body = p.function("endmacro")
		return &macroStmt{macroBody: m}
	case "filter":
		f := &filterStmt{filter: p.filters(nil, true), line: t.line}
		f.body, _ = p.body("endfilter")
		return f
	case "with":
		return p.with(t.line)
	case "generation":
		return &genStmt{&macroBody{name: "generation", line: t.line, body: p.function("endgeneration")}}
	case "break", "continue":
		if p.loops == 0 {
			p.failf(t.line, "'%s' outside of a loop", t.text)
		}
		if t.text == "break" {
			return breakStmt{}
		}
		return continueStmt{}
	case "autoescape", "block", "call", "extends", "from", "import", "include", "print":
		p.unsupportedf(t.line, "tag '%s'", t.text)
	}
	p.failf(t.line, "unknown tag '%s'", t.text)
	return nil
}

// function parses the body of a macro or a generation block. A break in the body cannot end a loop
// outside of it.
func (p *parser) function(end string) []stmt {
	loops := p.loops
	p.loops = 0
	b, _ := p.body(end)
	p.loops = loops
	return b
}

func (p *parser) forLoop(line int) stmt {
	f := &forStmt{line: line, target: p.target(tupleOpts{})}
	p.expect(tokName, "in")
	f.iter = p.tuple(tupleOpts{})
	if p.skipName("if") {
		f.test = p.expression(true)
	}
	if p.isName("recursive") {
		p.unsupportedf(line, "a recursive loop")
	}
	p.loops++
	var end string
	f.body, end = p.body("endfor", "else")
	p.loops--
	if end == "else" {
		f.els, _ = p.body("endfor")
	}
	return f
}

func (p *parser) with(line int) stmt {
	var values []expr
	s := &withStmt{set: setStmt{target: target{tuple: true}, line: line}}
	for p.cur().kind != tokBlockEnd && p.err == nil {
		if len(values) > 0 {
			p.expect(tokOp, ",")
		}
		s.set.target.parts = append(s.set.target.parts, p.target(tupleOpts{}))
		p.expect(tokOp, "=")
		values = append(values, p.expression(true))
	}
	s.set.e = &seqExpr{Tuple, values}
	s.body, _ = p.body("endwith")
	return s
}

func (p *parser) ifBlock(line int) stmt {
	top := &ifStmt{line: line}
	for at := top; ; {
		at.test = p.tuple(tupleOpts{})
		var end string
		at.body, end = p.body("elif", "else", "endif")
		switch end {
		case "elif":
			at = &ifStmt{line: p.cur().line}
			top.alts = append(top.alts, at)
			continue
		case "else":
			top.els, _ = p.body("endif")
		}
		return top
	}
}

func (p *parser) set(line int) stmt {
	to := p.target(tupleOpts{namespace: true})
	if p.skipOp("=") {
		return &setStmt{to, p.tuple(tupleOpts{cond: true}), line}
	}
	s := &setBlockStmt{target: to, line: line, filter: p.filters(nil, false)}
	s.body, _ = p.body("endset")
	return s
}

// signature parses the name and the parameters of a macro.
func (p *parser) signature(line int) *macroBody {
	m := &macroBody{line: line, name: p.assignable().text}
	p.expect(tokOp, "(")
	defaults := false
	for !p.skipOp(")") && p.err == nil {
		p.countOp()
		if len(m.params) > 0 {
			p.expect(tokOp, ",")
		}
		t := p.assignable()
		if slices.ContainsFunc(m.params, func(q param) bool { return q.name == t.text }) {
			p.failf(t.line, "duplicate parameter '%s'", t.text)
		}
		a := param{name: t.text, line: t.line}
		if p.skipOp("=") {
			defaults = true
			a.def = p.expression(true)
		} else if defaults {
			p.failf(t.line, "parameter '%s' without a default follows a parameter with a default", t.text)
		}
		m.params = append(m.params, a)
	}
	return m
}

// assignable parses a name that a template can set.
func (p *parser) assignable() token {
	t := p.expect(tokName, "")
	if slices.Contains(constants, t.text) {
		p.failf(t.line, "cannot assign to '%s'", t.text)
	}
	return t
}

// constants lists the names that a template cannot set.
var constants = []string{"true", "false", "none", "True", "False", "None"}

// target parses an assignment target: a name, a tuple, or, if allowed, a namespace attribute.
func (p *parser) target(o tupleOpts) target {
	line := p.cur().line
	o.simple = true
	return p.asTarget(p.tuple(o), line)
}

func (p *parser) asTarget(e expr, line int) target {
	switch e := e.(type) {
	case *nameExpr:
		return target{name: e.name, line: e.line}
	case *nsRef:
		return target{name: e.name, attr: e.attr, line: line}
	case *seqExpr:
		if e.kind != Tuple {
			break
		}
		t := target{tuple: true, line: line}
		for _, x := range e.items {
			t.parts = append(t.parts, p.asTarget(x, line))
		}
		return t
	}
	p.failf(line, "cannot assign to this expression")
	return target{}
}
