package chat

// The operators ==, < and in follow Python's equality and order of values, within bounds.

import (
	"math"
	"math/big"
	"strings"
)

func (r *run) compare(op cmpop, a, b Value) (bool, error) {
	switch op {
	case cmpEq, cmpNe:
		eq, err := r.equal(a, b)
		return eq == (op == cmpEq), err
	case cmpIn, cmpNotIn:
		in, err := r.contains(b, a)
		return in == (op == cmpIn), err
	}
	return r.order(op, a, b)
}

func (r *run) comparer() comparer { return comparer{&r.steps, r.t.opts.MaxSteps} }

// A comparer compares within a budget of steps: shared parts can make values exponentially large.
type comparer struct {
	steps *int64
	max   int64
}

// maxWalk bounds the nesting of values to compare and print. Python's own limit is close to it.
const maxWalk = 900

func (c comparer) pay(n, depth int) error {
	if *c.steps -= int64(n); *c.steps < 0 {
		return limitErrorf("more than %d evaluation steps", c.max)
	}
	if depth > maxWalk {
		return limitErrorf("values nest deeper than %d", maxWalk)
	}
	return nil
}

func (r *run) equal(a, b Value) (bool, error) {
	if a.kind == String && b.kind == String { // the most common case: the role of a message
		if err := r.pay(1+sameLen(a.s, b.s)>>8, 0); err != nil {
			return false, err
		}
		return a.s == b.s, nil
	}
	return r.comparer().equal(a, b, 0)
}

// sameLen returns the number of bytes that a comparison of a and b can have to read.
func sameLen(a, b string) int {
	if len(a) != len(b) {
		return 0
	}
	return len(a)
}

// compareCost returns the cost in steps of comparing two values without elements.
func compareCost(a, b Value) int {
	switch {
	case a.isStr() && b.isStr():
		return 1 + min(len(a.s), len(b.s))>>8
	case a.kind == Int && a.ref != nil && isNumber(b):
		return 1 + a.big().BitLen()>>8
	}
	return 1
}

// equal compares two small values.
func equal(a, b Value) bool {
	steps := int64(1 << 16)
	eq, err := comparer{&steps, steps}.equal(a, b, 0)
	return eq && err == nil
}

func (c comparer) equal(a, b Value, depth int) (bool, error) {
	if err := c.pay(compareCost(a, b), depth); err != nil {
		return false, err
	}
	switch {
	case a.isStr():
		return b.isStr() && a.s == b.s, nil
	case isNumber(a):
		if !isNumber(b) {
			return false, nil
		}
		n, ordered := compareNumbers(a, b)
		return ordered && n == 0, nil
	case a.kind != b.kind:
		return false, nil
	}
	switch a.kind {
	case Undefined, None:
		return true, nil
	case List, Tuple:
		return c.items(a.Items(), b.Items(), depth+1)
	case Dict:
		x, y := a.Map(), b.Map()
		if x == y {
			return true, nil
		}
		if x.Len() != y.Len() {
			return false, nil
		}
		for i, k := range x.keys {
			j, err := c.find(y, k)
			if j < 0 || err != nil {
				return false, err
			}
			if eq, err := c.same(x.vals[i], y.vals[j], depth+1); !eq || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	if typeName(a) != typeName(b) || a.ref == b.ref {
		return a.ref == b.ref, nil
	}
	switch a.ref.(type) {
	case *rangeObject, *view, *method:
		return false, unsupportedf("a comparison of two values of type %s", typeName(a))
	}
	return false, nil
}

// same is how containers compare elements: identity comes first, so a NaN is equal to itself.
func (c comparer) same(a, b Value, depth int) (bool, error) {
	if identical(a, b) {
		return true, nil
	}
	return c.equal(a, b, depth)
}

func (c comparer) items(a, b []Value, depth int) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	if len(a) > 0 && &a[0] == &b[0] {
		return true, nil
	}
	for i := range a {
		if eq, err := c.same(a[i], b[i], depth); !eq || err != nil {
			return false, err
		}
	}
	return true, nil
}

// identical is Python's is, as far as values show it: one object, or a value that exists once.
func identical(a, b Value) bool {
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case None:
		return true
	case Bool:
		return a.n == b.n
	case Int:
		// Python keeps one object for each small int.
		return a.ref != nil && a.ref == b.ref || a.ref == nil && b.ref == nil && a.n == b.n && a.n >= -5 && a.n <= 256
	case String, Markup, Float, Undefined:
		return false
	}
	return a.ref == b.ref
}

// compareNumbers compares int and float exactly, without rounding.
func compareNumbers(a, b Value) (n int, ordered bool) {
	if a.kind == Float && b.kind == Float {
		x, y := a.float(), b.float()
		switch {
		case x < y:
			return -1, true
		case x > y:
			return 1, true
		}
		return 0, x == y
	}
	if b.kind == Float {
		n, ordered = compareNumbers(b, a)
		return -n, ordered
	}
	if a.kind == Float {
		f := a.float()
		switch {
		case math.IsNaN(f):
			return 0, false
		case math.IsInf(f, 1):
			return 1, true
		case math.IsInf(f, -1):
			return -1, true
		}
		return new(big.Float).SetFloat64(f).Cmp(new(big.Float).SetPrec(0).SetInt(b.big())), true
	}
	x, ok1 := a.small()
	y, ok2 := b.small()
	if !ok1 || !ok2 {
		return a.big().Cmp(b.big()), true
	}
	switch {
	case x < y:
		return -1, true
	case x > y:
		return 1, true
	}
	return 0, true
}

func (r *run) order(op cmpop, a, b Value) (bool, error) {
	return r.comparer().order(op, a, b, 0)
}

func decide(op cmpop, n int) bool {
	switch op {
	case cmpLt:
		return n < 0
	case cmpLe:
		return n <= 0
	case cmpGt:
		return n > 0
	}
	return n >= 0
}

func (c comparer) order(op cmpop, a, b Value, depth int) (bool, error) {
	if err := c.pay(compareCost(a, b), depth); err != nil {
		return false, err
	}
	switch {
	case isNumber(a) && isNumber(b):
		n, ordered := compareNumbers(a, b)
		return ordered && decide(op, n), nil
	case a.isStr() && b.isStr():
		return decide(op, strings.Compare(a.s, b.s)), nil // UTF-8 sorts like its code points
	case (a.kind == List || a.kind == Tuple) && a.kind == b.kind:
		x, y := a.Items(), b.Items()
		for i := 0; i < len(x) && i < len(y); i++ {
			eq, err := c.same(x[i], y[i], depth+1)
			if err != nil {
				return false, err
			}
			if !eq {
				return c.order(op, x[i], y[i], depth+1)
			}
		}
		return decide(op, len(x)-len(y)), nil
	case a.kind == Undefined:
		return false, undefinedError(a)
	case b.kind == Undefined:
		return false, undefinedError(b)
	}
	if _, ok := a.ref.(*view); ok {
		if _, ok := b.ref.(*view); ok {
			return false, unsupportedf("ordering of dict views")
		}
	}
	return false, typeErrorf("'%s' and '%s' cannot be ordered", typeName(a), typeName(b))
}

// contains evaluates "x in v".
func (r *run) contains(v, x Value) (bool, error) {
	switch v.kind {
	case String, Markup:
		if !x.isStr() {
			return false, typeErrorf("'in <string>' requires string as left operand, not %s", typeName(x))
		}
		if err := r.payScan(len(v.s)); err != nil {
			return false, err
		}
		return strings.Contains(v.s, x.s), nil
	case Dict:
		i, err := r.find(v.Map(), x)
		return i >= 0, err
	}
	if o, ok := v.ref.(*view); ok && o.kind == 'k' {
		i, err := r.find(o.of, x)
		return i >= 0, err
	}
	it, err := r.iterate(v)
	if err != nil {
		return false, typeErrorf("argument of type '%s' is not iterable", typeName(v))
	}
	c := r.comparer()
	for {
		y, ok, err := it.next(r)
		if err != nil || !ok {
			return false, err
		}
		if eq, err := c.same(y, x, 0); eq || err != nil {
			return eq, err
		}
	}
}

func typeName(v Value) string {
	switch v.kind {
	case Undefined:
		return "Undefined"
	case None:
		return "NoneType"
	case Bool:
		return "bool"
	case Int:
		return "int"
	case Float:
		return "float"
	case String:
		return "str"
	case Markup:
		return "Markup"
	case List:
		return "list"
	case Tuple:
		return "tuple"
	case Dict:
		return "dict"
	}
	switch o := v.ref.(type) {
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case *rangeObject:
		return "range"
	case *view:
		return map[byte]string{'k': "dict_keys", 'v': "dict_values", 'i': "dict_items"}[o.kind]
	case *iterator:
		return "generator"
	case *loopObject:
		return "LoopContext"
	}
	return "builtin_function_or_method"
}
