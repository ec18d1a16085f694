package chat

import (
	"fmt"
	"slices"
)

// A resolver resolves names to places, and filters and tests to functions. It keeps the first
// error.
type resolver struct {
	t     *Template
	index map[string]int
	err   error
	line  int
	// lateNames means that the expression is directly in an if or a conditional expression. An unknown
	// filter is then an error only when it is evaluated.
	lateNames bool
}

func resolveTemplate(t *Template) (int, error) {
	c := &resolver{t: t, index: map[string]int{}}
	work := maxScopeWork
	fn := &function{work: &work}
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

// frame returns the loads that fill the slots of a scope on entry.
func (c *resolver) frame(s *scope) frame {
	var f frame
	if *s.fn.work -= s.fn.slots >> 2; *s.fn.work < 0 {
		return f
	}
	for slot := range s.fn.slots { // in order, for reproducible behavior
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
	return placeOf(s, r)
}

func (c *resolver) body(body []stmt, s *scope) {
	for _, x := range body {
		c.stmt(x, s)
	}
}

// resolveScope resolves a separate scope. An enclosing if has no effect there.
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
			c.body(x.body, in)
			if x.filter != nil {
				c.expr(x.filter, in)
			}
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
		for _, t := range x.targets {
			in.visitTarget(t, true)
		}
		in.visit(x.body)
		for i := range x.targets {
			c.target(&x.targets[i], in)
			c.expr(x.values[i], s)
		}
		c.resolveScope(func() { c.body(x.body, in) })
		x.frame = c.frame(in)
	}
}

func (c *resolver) loop(x *forStmt, s *scope) {
	x.extended = freeNames(x.body, "loop")["loop"]
	names([]stmt{x}, func(name string, store bool) {
		if store && name == "loop" {
			c.fail(x.line, fmt.Errorf("syntax error: cannot assign to the variable loop within a loop"))
		}
	})
	in, els, test := newScope(s, s.fn), newScope(s, s.fn), newScope(s, s.fn)
	if x.extended {
		in.declare("loop")
	}
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
	if x.extended {
		x.loopVar = c.find(in, "loop", x.line)
	}
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
	for _, p := range m.params {
		in.declare(p.name)
		if p.name == "caller" {
			c.fail(p.line, unsupportedf("parameter 'caller' of a macro"))
		}
	}
	for _, p := range m.params {
		if p.def != nil {
			in.visitExpr(p.def)
		}
	}
	in.visit(m.body)
	free := freeNames(m.body, unsupportedMacroNames...)
	for _, name := range unsupportedMacroNames {
		if free[name] && !slices.ContainsFunc(m.params, func(p param) bool { return p.name == name }) {
			c.fail(m.line, unsupportedf("variable '%s' in a macro", name))
		}
	}
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
}

func (c *resolver) target(t *target, s *scope) {
	if t.tuple {
		for i := range t.parts {
			c.target(&t.parts[i], s)
		}
		return
	}
	t.place = c.find(s, t.name, t.line)
}

func (c *resolver) expr(e expr, s *scope) {
	switch e := e.(type) {
	case *nameExpr:
		if slices.Contains(unsupportedFunctions, e.name) && s.isInput(e.name) {
			c.fail(e.line, unsupportedf("'%s'", e.name))
		}
		e.place = c.find(s, e.name, e.line)
		return
	case *condExpr:
		late := c.lateNames
		c.lateNames = true
		eachChild(e, func(x expr) { c.expr(x, s) })
		c.lateNames = late
		return
	case *orExpr:
		c.shortCircuit(e.a, e.b, true, s)
		return
	case *andExpr:
		c.shortCircuit(e.a, e.b, false, s)
		return
	case *sliceExpr:
		e.folded = true
		eachChild(e, func(x expr) {
			c.expr(x, s)
			e.folded = e.folded && isConst(x)
		})
		return
	case *filterExpr:
		e.fn = c.filter(e.name, e.line)
		c.namedIn(e)
	case *testExpr:
		e.fn = c.test(e.name, e.line)
	case *attrExpr:
		if of, ok := e.of.(*nameExpr); ok && of.name == "loop" && slices.Contains(unsupportedLoopAttrs, e.name) {
			c.fail(of.line, unsupportedf("'loop.%s'", e.name))
		}
	case *callExpr:
		if at, ok := e.fn.(*attrExpr); ok && slices.Contains(unsupportedNames, at.name) {
			c.fail(e.line, unsupportedf("method '%s'", at.name))
		}
	}
	eachChild(e, func(x expr) { c.expr(x, s) })
}

// isConst reports whether Jinja knows the value of an expression at compile time: it contains no
// names and calls (optimizer.py and as_const of nodes.py).
func isConst(e expr) bool {
	switch e := e.(type) {
	case *nameExpr, *callExpr:
		return false
	case *sliceExpr:
		return e.folded
	case *condExpr:
		if e.els == nil {
			return false
		}
	case *filterExpr:
		switch e.name {
		case "map", "select", "reject", "selectattr", "rejectattr": // they need a context
			return false
		}
	}
	known := true
	eachChild(e, func(x expr) { known = known && isConst(x) })
	return known
}

// shortCircuit resolves a and b. If a alone decides the result, jinja2 replaces the expression by a
// constant, and never checks the names in b (optimizer.py, Or.as_const and And.as_const).
func (c *resolver) shortCircuit(a, b expr, decides bool, s *scope) {
	c.expr(a, s)
	late := c.lateNames
	if truth, known := constTruth(a); known && truth == decides {
		c.lateNames = true
	}
	c.expr(b, s)
	c.lateNames = late
}

// constTruth returns the truth of an expression of literals, and whether it is one.
func constTruth(e expr) (truth, known bool) {
	all := func(lists ...[]expr) bool {
		for _, list := range lists {
			for _, x := range list {
				if _, known := constTruth(x); !known {
					return false
				}
			}
		}
		return true
	}
	switch e := e.(type) {
	case *constExpr:
		return new(run).truth(e.v), true
	case *tupleExpr:
		return len(e.items) > 0, all(e.items)
	case *listExpr:
		return len(e.items) > 0, all(e.items)
	case *dictExpr:
		return len(e.keys) > 0, all(e.keys, e.vals)
	case *notExpr:
		truth, known = constTruth(e.e)
		return !truth, known
	}
	return false, false
}

// namedIn checks the literal name that map applies as a filter, or select and its kind as a test.
// Python looks for it in the render.
func (c *resolver) namedIn(e *filterExpr) {
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

func (c *resolver) filter(name string, line int) filterFunc {
	f := filterByName(name)
	if f == nil {
		c.unknown("filter", name, unsupportedFilters, line)
	}
	return f
}

func (c *resolver) test(name string, line int) testFunc {
	f := testByName(name)
	if f == nil {
		c.unknown("test", name, unsupportedTests, line)
	}
	return f
}

func (c *resolver) unknown(kind, name string, unsupported []string, line int) {
	switch {
	case slices.Contains(unsupported, name):
		c.fail(line, unsupportedf("%s '%s'", kind, name))
	case !c.lateNames:
		c.fail(line, fmt.Errorf("syntax error: no %s named '%s'", kind, name))
	}
}
