package chat

import (
	"maps"
)

// Jinja resolves variable names when it compiles a template, not at run time. A loop body, a macro
// and a block that captures text are scopes. A variable that a scope sets belongs to the scope and
// ends with it. A variable that a scope only reads belongs to the enclosing scope. If a scope sets
// a name that also exists outside of it, the scope starts with a copy of the outer value. An if is
// not a scope.
//
// This file follows jinja2/idtracking.py closely, because edge cases are visible in the output. For
// example, if a template sets a name anywhere at one level, a deeper level never looks up the name
// among the inputs.
//
// Each function (the template itself or a macro) has slots for all variables of its scopes.

// A place locates the slot of a variable. If up is 0, the slot belongs to the current function. If
// up is 1, it belongs to the function around the current function, and so on.
type place struct {
	up   int
	slot int
}

type loadKind uint8

const (
	loadParam   loadKind = iota // set by the code that enters the scope
	loadContext                 // looked up among the inputs
	loadAlias                   // copied from the enclosing scope
	loadMissing                 // not yet set
)

// A load describes how to fill a slot when its scope is entered.
type load struct {
	kind loadKind
	slot int
	name int   // loadContext: index into Template.names
	from place // loadAlias
}

type frame struct{ loads []load }

type funcScope struct {
	depth int
	slots int
	work  *int // budget for copying scopes; negative if scopes copied too many names
}

// within returns a new function nested in f.
func (f *funcScope) within() *funcScope { return &funcScope{depth: f.depth + 1, work: f.work} }

// maxScopeWork is the maximum number of names that the scopes of a template can copy. The largest
// real templates copy less than a hundredth of this number.
const maxScopeWork = 4_000_000

// A ref is a slot of a function. Unlike a place, it does not depend on the current function.
type ref struct {
	fn   *funcScope
	slot int
}

type symbolLoad struct {
	kind loadKind
	name string
	from ref
}

// A scope tracks the names in one scope of a template. Each branch of an if works on a copy, and
// the copies share slots.
type scope struct {
	parent *scope
	fn     *funcScope
	slots  map[string]int // shared by the copies: one slot per name
	refs   map[string]ref
	loads  map[int]symbolLoad
	stores map[string]bool
}

func newScope(parent *scope, fn *funcScope) *scope {
	return &scope{parent, fn, map[string]int{}, map[string]ref{}, map[int]symbolLoad{}, map[string]bool{}}
}

func (s *scope) branch() *scope {
	if *s.fn.work -= len(s.refs) + len(s.loads) + len(s.stores); *s.fn.work < 0 {
		return newScope(s.parent, s.fn) // the caller refuses the template later
	}
	return &scope{s.parent, s.fn, s.slots, maps.Clone(s.refs), maps.Clone(s.loads), maps.Clone(s.stores)}
}

func (s *scope) find(name string) (ref, bool) {
	for ; s != nil; s = s.parent {
		if r, ok := s.refs[name]; ok {
			return r, true
		}
	}
	return ref{}, false
}

// isInput reports whether a name that a scope reads is looked up among the inputs.
func (s *scope) isInput(name string) bool {
	for ; s != nil; s = s.parent {
		if r, ok := s.refs[name]; ok {
			return s.loads[r.slot].kind == loadContext
		}
	}
	return false
}

func (s *scope) define(name string, l symbolLoad) ref {
	slot, ok := s.slots[name]
	if !ok {
		slot = s.fn.slots
		s.fn.slots++
		s.slots[name] = slot
	}
	r := ref{s.fn, slot}
	s.refs[name] = r
	s.loads[slot] = l
	return r
}

func (s *scope) declare(name string) ref {
	s.stores[name] = true
	return s.define(name, symbolLoad{kind: loadParam})
}

func (s *scope) load(name string) {
	if _, ok := s.find(name); !ok {
		s.define(name, symbolLoad{kind: loadContext, name: name})
	}
}

func (s *scope) store(name string) {
	s.stores[name] = true
	if _, ok := s.refs[name]; ok {
		return
	}
	if s.parent != nil {
		if outer, ok := s.parent.find(name); ok {
			s.define(name, symbolLoad{kind: loadAlias, from: outer})
			return
		}
	}
	s.define(name, symbolLoad{kind: loadMissing})
}

// join merges the branches of an if. If a branch does not set a name that another branch sets, the
// name keeps its outer value in that branch.
func (s *scope) join(branches ...*scope) {
	if *s.fn.work < 0 {
		return
	}
	stores := map[string]bool{}
	for _, b := range branches {
		maps.Copy(stores, b.stores)
	}
	for name := range s.stores {
		delete(stores, name)
	}
	for _, b := range branches {
		maps.Copy(s.refs, b.refs)
		maps.Copy(s.loads, b.loads)
		maps.Copy(s.stores, b.stores)
	}
	for name := range stores {
		target, _ := s.find(name)
		if s.parent != nil {
			if outer, ok := s.parent.find(name); ok {
				s.loads[target.slot] = symbolLoad{kind: loadAlias, from: outer}
				continue
			}
		}
		s.loads[target.slot] = symbolLoad{kind: loadContext, name: name}
	}
}

// visit records the names that statements use in scope s, except in the bodies of nested scopes.
func (s *scope) visit(body []stmt) {
	for _, x := range body {
		s.visitStmt(x)
	}
}

func (s *scope) visitStmt(x stmt) {
	switch x := x.(type) {
	case *outStmt:
		s.visitExpr(x.e)
	case *ifStmt:
		s.visitExpr(x.test)
		body, alts, els := s.branch(), s.branch(), s.branch()
		body.visit(x.body)
		for _, a := range x.alts {
			alts.visitStmt(a)
		}
		els.visit(x.els)
		s.join(body, alts, els)
	case *forStmt:
		s.visitExpr(x.iter)
	case *setStmt:
		s.visitExpr(x.e)
		s.visitTarget(x.target, false)
	case *setBlockStmt:
		s.visitTarget(x.target, false)
	case *macroStmt:
		s.store(x.name)
	case *filterStmt:
		s.visitExpr(x.filter)
	case *withStmt:
		s.visitExpr(x.set.e)
	}
}

func (s *scope) visitExpr(e expr) {
	if n, ok := e.(*nameExpr); ok {
		s.load(n.name)
		return
	}
	eachChild(e, s.visitExpr)
}

func (s *scope) visitTarget(t target, param bool) {
	switch {
	case t.tuple:
		for _, p := range t.parts {
			s.visitTarget(p, param)
		}
	case t.attr != "":
		s.load(t.name)
	case param:
		s.declare(t.name)
	default:
		s.store(t.name)
	}
}

// eachChild calls f for the direct child expressions of e, in Jinja's order.
func eachChild(e expr, f func(expr)) {
	all := func(list []expr) {
		for _, x := range list {
			f(x)
		}
	}
	some := func(list ...expr) {
		for _, x := range list {
			if x != nil {
				f(x)
			}
		}
	}
	args := func(c *callExpr) {
		if c == nil {
			return
		}
		all(c.args)
		for _, k := range c.kwargs {
			f(k.e)
		}
	}
	switch e := e.(type) {
	case *seqExpr:
		all(e.items)
	case *dictExpr:
		for i := range e.keys {
			some(e.keys[i], e.vals[i])
		}
	case *boolExpr:
		some(e.a, e.b)
	case *notExpr:
		f(e.e)
	case *signExpr:
		f(e.e)
	case *binaryExpr:
		some(e.a, e.b)
	case *sumExpr:
		all(e.terms)
	case *concatExpr:
		all(e.parts)
	case *compareExpr:
		all(e.values)
	case *condExpr:
		some(e.test, e.then, e.els)
	case *attrExpr:
		f(e.of)
	case *itemExpr:
		some(e.of, e.key)
	case *sliceExpr:
		some(e.of, e.start, e.stop)
	case *callExpr:
		some(e.fn)
		args(e)
	case *applyExpr:
		some(e.of)
		args(e.call)
	}
}
