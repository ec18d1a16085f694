package chat

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A resolver resolves names to places, and filters and tests to functions. It keeps the first
// error.
type resolver struct {
	t     *Template
	index map[string]int
	err   error
	line  int
	loops int          // number of enclosing loops
	used  map[ref]bool // the variables named loop that the template reads
	// lateNames is true if the current expression is directly inside an if statement or a
	// conditional expression. In such a place, an unknown filter is an error only when it is
	// evaluated.
	lateNames bool
	// macroNames holds the names from unsupportedMacroNames that refer to the macro's own variables
	// at this place. It is empty outside of macros.
	macroNames []string
}

func resolveTemplate(t *Template) (int, error) {
	c := &resolver{t: t, index: map[string]int{}, used: map[ref]bool{}}
	work := maxScopeWork
	fn := &funcScope{work: &work}
	s := newScope(nil, fn)
	s.visit(t.body)
	c.body(t.body, s)
	f := c.frame(s)
	if work < 0 {
		return 0, limitErrorf("too many variables in nested scopes")
	}
	t.loads, t.slots = f.loads, fn.slots
	return c.line, c.err
}

func (c *resolver) fail(line int, err error) {
	if c.err == nil {
		c.err, c.line = err, line
	}
}

// frame returns the loads that fill the slots of a scope when the scope is entered.
func (c *resolver) frame(s *scope) frame {
	var f frame
	if *s.fn.work -= s.fn.slots >> 2; *s.fn.work < 0 {
		return f
	}
	for slot := range s.fn.slots { // in slot order, so that the result is reproducible
		l, ok := s.loads[slot]
		if !ok || l.kind == loadParam {
			continue
		}
		out := load{kind: l.kind, slot: slot}
		switch l.kind {
		case loadContext:
			out.name = c.name(l.name)
		case loadAlias:
			out.from = placeOf(s, l.from)
		}
		f.loads = append(f.loads, out)
	}
	return f
}

func (c *resolver) name(name string) int {
	i, ok := c.index[name]
	if !ok {
		i = len(c.t.names)
		c.t.names = append(c.t.names, name)
		c.index[name] = i
	}
	return i
}

func placeOf(s *scope, r ref) place { return place{s.fn.depth - r.fn.depth, r.slot} }

func (c *resolver) find(s *scope, name string, line int) place {
	r, ok := s.find(name)
	if !ok {
		c.fail(line, fmt.Errorf("syntax error: Jinja cannot resolve the name '%s' here", name))
		return place{}
	}
	if name == "loop" {
		c.used[r] = true
	}
	return placeOf(s, r)
}

func (c *resolver) body(body []stmt, s *scope) {
	for _, x := range body {
		c.stmt(x, s)
	}
}

// resolveScope calls f for a separate scope. In this scope, an enclosing if does not delay errors
// (see lateNames).
func (c *resolver) resolveScope(f func()) {
	late := c.lateNames
	c.lateNames = false
	f()
	c.lateNames = late
}

func (c *resolver) stmt(x stmt, s *scope) {
	switch x := x.(type) {
	case *outStmt:
		c.expr(x.e, s)
	case *ifStmt:
		late := c.lateNames
		c.lateNames = true
		c.expr(x.test, s)
		c.body(x.body, s)
		for _, a := range x.alts {
			c.stmt(a, s)
		}
		c.body(x.els, s)
		c.lateNames = late
	case *forStmt:
		c.loop(x, s)
	case *setStmt:
		c.target(&x.target, s)
		c.expr(x.e, s)
	case *setBlockStmt:
		in := newScope(s, s.fn)
		in.visit(x.body)
		c.resolveScope(func() {
			if x.filter != nil {
				c.expr(x.filter, in)
			}
			c.body(x.body, in)
		})
		c.target(&x.target, s)
		x.frame = c.frame(in)
	case *macroStmt:
		c.macro(x.macroBody, s)
		x.place = c.find(s, x.name, x.line)
	case *genStmt:
		c.macro(x.macroBody, s)
	case *filterStmt:
		in := newScope(s, s.fn)
		in.visit(x.body)
		in.visitExpr(x.filter)
		c.resolveScope(func() {
			c.body(x.body, in)
			c.expr(x.filter, in)
		})
		x.frame = c.frame(in)
	case *withStmt:
		in := newScope(s, s.fn)
		in.visitTarget(x.set.target, true)
		in.visit(x.body)
		c.target(&x.set.target, in)
		c.expr(x.set.e, s)
		c.resolveScope(func() { c.body(x.body, in) })
		x.frame = c.frame(in)
	}
}

func (c *resolver) loop(x *forStmt, s *scope) {
	c.loops++
	defer func() { c.loops-- }()
	in, els, test := newScope(s, s.fn), newScope(s, s.fn), newScope(s, s.fn)
	loop := in.declare("loop")
	in.visitTarget(x.target, true)
	in.visit(x.body)
	els.visit(x.els)
	c.expr(x.iter, s)
	x.testTgt = cloneTarget(x.target)
	if x.test != nil {
		test.visitTarget(x.testTgt, true)
		test.visitExpr(x.test)
		c.resolveScope(func() {
			c.target(&x.testTgt, test)
			c.expr(x.test, test)
		})
	}
	c.resolveScope(func() {
		c.target(&x.target, in)
		c.body(x.body, in)
		c.body(x.els, els)
	})
	x.extended, x.loopVar = c.used[loop], placeOf(in, loop)
	x.bodyFrame, x.elseFrame, x.testFrame = c.frame(in), c.frame(els), c.frame(test)
}

func cloneTarget(t target) target {
	parts := make([]target, len(t.parts))
	for i, p := range t.parts {
		parts[i] = cloneTarget(p)
	}
	t.parts = parts
	return t
}

func (c *resolver) macro(m *macroBody, s *scope) {
	fn := s.fn.within()
	in := newScope(s, fn)
	enclosing := c.macroNames
	c.macroNames = slices.Clone(unsupportedMacroNames)
	for _, p := range m.params {
		in.declare(p.name)
		c.declared(p.name)
		switch {
		case p.name == "caller":
			c.fail(p.line, unsupportedf("a macro parameter named 'caller'"))
		case p.name == "loop" && c.loops > 0:
			c.fail(p.line, unsupportedf("a macro parameter named 'loop' inside a loop"))
		}
	}
	for _, p := range m.params {
		if p.def != nil {
			in.visitExpr(p.def)
		}
	}
	in.visit(m.body)
	c.resolveScope(func() {
		for i := range m.params {
			p := &m.params[i]
			p.place = c.find(in, p.name, p.line)
			if p.def != nil {
				c.expr(p.def, in)
			}
		}
		c.body(m.body, in)
	})
	m.frame = c.frame(in)
	m.slots = fn.slots
	c.macroNames = slices.DeleteFunc(enclosing, func(name string) bool { return !slices.Contains(c.macroNames, name) })
}

// declared records that a template sets a name. From then on, the name does not refer to one of the
// macro's own variables, such as caller.
func (c *resolver) declared(name string) {
	c.macroNames = slices.DeleteFunc(c.macroNames, func(n string) bool { return n == name })
}

func (c *resolver) target(t *target, s *scope) {
	if t.tuple {
		for i := range t.parts {
			c.target(&t.parts[i], s)
		}
		return
	}
	if t.name == "loop" && c.loops > 0 {
		c.fail(t.line, unsupportedf("an assignment to the variable 'loop' inside a loop"))
	}
	if t.attr == "" {
		c.declared(t.name)
	}
	t.place = c.find(s, t.name, t.line)
}

func (c *resolver) expr(e expr, s *scope) {
	switch e := e.(type) {
	case *nameExpr:
		switch {
		case slices.Contains(unsupportedFunctions, e.name) && s.isInput(e.name):
			c.fail(e.line, unsupportedf("'%s'", e.name))
		case slices.Contains(c.macroNames, e.name):
			c.fail(e.line, unsupportedf("variable '%s' in a macro", e.name))
		}
		e.place = c.find(s, e.name, e.line)
		return
	case *condExpr:
		late := c.lateNames
		c.lateNames = true
		eachChild(e, func(x expr) { c.expr(x, s) })
		c.lateNames = late
		return
	case *applyExpr:
		if e.kind == "filter" {
			e.fn = c.named(e, filterByName(e.name), unsupportedFilters)
			c.namedIn(e)
		} else {
			e.fn = c.named(e, testByName(e.name), unsupportedTests)
		}
	case *attrExpr:
		if of, ok := e.of.(*nameExpr); ok && of.name == "loop" && slices.Contains(unsupportedLoopAttrs, e.name) {
			c.fail(of.line, unsupportedf("'loop.%s'", e.name))
		}
	case *callExpr:
		c.call(e, s)
	}
	eachChild(e, func(x expr) { c.expr(x, s) })
}

// call refuses a call to a method or a global function if the method, the function or an argument
// is known to be unsupported.
func (c *resolver) call(e *callExpr, s *scope) {
	switch of := e.fn.(type) {
	case *attrExpr:
		if slices.Contains(unsupportedNames, of.name) {
			c.fail(e.line, unsupportedf("method '%s'", of.name))
		}
		c.arguments(of.name, of.onStr, e, e.line)
	case *nameExpr:
		switch {
		case !s.isInput(of.name):
		case of.name == "namespace":
			if err := checkNamespace(shape(e)); err != nil {
				c.fail(e.line, err)
			}
		case of.name == clockName && len(e.args) == 1:
			if format, ok := e.args[0].(*constExpr); ok && format.v.isStr() {
				if _, err := Strftime(time.Time{}, format.v.s); err != nil {
					c.fail(e.line, err)
				}
			}
		}
	}
}

// shape returns the arguments of a call without their values.
func shape(call *callExpr) args {
	a := args{pos: make([]Value, len(call.args))}
	for _, k := range call.kwargs {
		a.kw = append(a.kw, keyword{name: k.name})
	}
	return a
}

// arguments refuses unsupported arguments of a call. f and call can be nil.
func (c *resolver) arguments(what string, f *function, call *callExpr, line int) {
	if f == nil || call == nil || f.variadic != nil {
		return
	}
	if _, err := new(run).bind(what, f.params, shape(call)); errors.Is(err, ErrUnsupported) {
		c.fail(line, err)
	}
}

// namedIn checks a literal name in the arguments of map, select, reject, selectattr or rejectattr.
// It refuses the name of an unsupported filter or test. Python looks up the name during the render.
func (c *resolver) namedIn(e *applyExpr) {
	if e.call == nil {
		return
	}
	kind, names, at := "test", unsupportedTests, 0
	switch e.name {
	case "map":
		kind, names = "filter", unsupportedFilters
	case "select", "reject":
	case "selectattr", "rejectattr":
		at = 1
	default:
		return
	}
	if at < len(e.call.args) {
		if name, ok := e.call.args[at].(*constExpr); ok && name.v.isStr() && slices.Contains(names, name.v.s) {
			c.fail(e.line, unsupportedf("%s '%s'", kind, name.v.s))
		}
	}
}

// named returns f, the filter or test of e. It sets an error if f is unknown or not supported.
func (c *resolver) named(e *applyExpr, f *function, unsupported []string) *function {
	switch {
	case slices.Contains(unsupported, e.name):
		c.fail(e.line, unsupportedf("%s '%s'", e.kind, e.name))
	case f == nil && !c.lateNames:
		c.fail(e.line, fmt.Errorf("syntax error: no %s named '%s'", e.kind, e.name))
	}
	c.arguments(e.name, f, e.call, e.line)
	return f
}
