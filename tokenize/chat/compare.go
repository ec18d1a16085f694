package chat

// The operators "==", "<" and "in" follow Python's rules for the equality and order of values.
// Comparisons that this package does not support are refused.

import (
	"cmp"
	"math"
	"strings"
)

func (r *run) compare(op binop, a, b Value) (bool, error) {
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

// maxWalk limits the nesting of values that are compared or printed. It is close to Python's own
// limit.
const maxWalk = 900

// visit pays for n units of work on a value at the given depth. Each visit costs steps, because a
// walk through a value with shared parts can take exponential time.
func (r *run) visit(n, depth int) error {
	if depth > maxWalk {
		return limitErrorf("values nest deeper than %d levels", maxWalk)
	}
	return r.pay(n, 0)
}

func (r *run) equal(a, b Value) (bool, error) {
	if a.kind == String && b.kind == String { // the most common case, such as the role of a message
		if err := r.pay(1+sameLen(a.s, b.s)>>8, 0); err != nil {
			return false, err
		}
		return a.s == b.s, nil
	}
	return r.equalAt(a, b, 0)
}

// sameLen returns the maximum number of bytes that a comparison of a and b reads.
func sameLen(a, b string) int {
	if len(a) != len(b) {
		return 0
	}
	return len(a)
}

func (r *run) equalAt(a, b Value, depth int) (bool, error) {
	if err := r.visit(1+min(len(a.s), len(b.s))>>8, depth); err != nil {
		return false, err
	}
	switch {
	case a.isStr():
		return b.isStr() && a.s == b.s, nil
	case isNumber(a) && isNumber(b):
		return compareNumbers(cmpEq, a, b)
	case a.kind != b.kind:
		return false, nil
	}
	switch a.kind {
	case Undefined, None:
		return true, nil
	case List, Tuple:
		return r.equalItems(a.Items(), b.Items(), depth+1)
	case Dict:
		x, y := a.Map(), b.Map()
		if x == y {
			return true, nil
		}
		if x.Len() != y.Len() {
			return false, nil
		}
		if err := r.pay(x.Len()>>2, 0); err != nil {
			return false, err
		}
		for i, k := range x.keys {
			j, err := r.find(y, k)
			if j < 0 || err != nil {
				return false, err
			}
			if eq, err := r.same(x.vals[i], y.vals[j], depth+1); !eq || err != nil {
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

// same reports whether two elements of containers are identical or equal.
func (r *run) same(a, b Value, depth int) (bool, error) {
	if identical(a, b) {
		return true, nil
	}
	return r.equalAt(a, b, depth)
}

func (r *run) equalItems(a, b []Value, depth int) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	if len(a) > 0 && &a[0] == &b[0] {
		return true, nil
	}
	if err := r.pay(len(a)>>2, 0); err != nil {
		return false, err
	}
	for i := range a {
		if eq, err := r.same(a[i], b[i], depth); !eq || err != nil {
			return false, err
		}
	}
	return true, nil
}

// identical reports whether two values are certainly the same object.
func identical(a, b Value) bool { return a.kind == b.kind && a.ref != nil && a.ref == b.ref }

// compareNumbers compares numbers without rounding. It refuses to compare an int of more than 53
// bits with a float.
func compareNumbers(op binop, a, b Value) (bool, error) {
	if a.kind != Float && b.kind != Float {
		switch {
		case op == cmpEq:
			return a.n == b.n && a.s == b.s, nil
		case a.s == "" && b.s == "":
			return decide(op, cmp.Compare(a.n, b.n)), nil
		}
		return false, errHuge()
	}
	x, exact1 := exactFloat(a)
	y, exact2 := exactFloat(b)
	switch {
	case math.IsNaN(x) || math.IsNaN(y):
		return false, nil
	case !exact1 || !exact2:
		return false, unsupportedf("a comparison of a float with an int of more than 53 bits")
	}
	return decide(op, cmp.Compare(x, y)), nil
}

func decide(op binop, n int) bool {
	switch op {
	case cmpEq:
		return n == 0
	case cmpLt:
		return n < 0
	case cmpLe:
		return n <= 0
	case cmpGt:
		return n > 0
	}
	return n >= 0
}

func (r *run) order(op binop, a, b Value) (bool, error) {
	if err := r.pay(1+min(len(a.s), len(b.s))>>8, 0); err != nil {
		return false, err
	}
	switch {
	case isNumber(a) && isNumber(b):
		return compareNumbers(op, a, b)
	case a.isStr() && b.isStr():
		return decide(op, strings.Compare(a.s, b.s)), nil // UTF-8 strings sort in the order of their code points
	case (a.kind == List || a.kind == Tuple) && a.kind == b.kind:
		return false, unsupportedf("ordering two values of type %s", typeName(a))
	case a.kind == Undefined:
		return false, undefinedError(a)
	case b.kind == Undefined:
		return false, undefinedError(b)
	}
	if _, ok := a.ref.(*view); ok {
		if _, ok := b.ref.(*view); ok {
			return false, unsupportedf("ordering two values of type %s", typeName(a))
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
	switch o := v.ref.(type) {
	case *view:
		if o.kind == 'k' {
			i, err := r.find(o.of, x)
			return i >= 0, err
		}
	case *rangeObject:
		return r.rangeContains(o, x)
	}
	it, err := r.iterate(v)
	if err != nil {
		return false, err
	}
	for _, y := range it.items {
		if eq, err := r.same(y, x, 0); eq || err != nil {
			return eq, err
		}
	}
	return false, it.err
}

func (r *run) rangeContains(o *rangeObject, x Value) (bool, error) {
	if n, ok := x.small(); ok {
		offset := uint64(n) - uint64(o.start)
		step := uint64(o.step)
		if o.step < 0 {
			offset, step = -offset, -step
		}
		return offset%step == 0 && offset/step < uint64(o.len()), nil
	}
	for i := range o.len() {
		if eq, err := r.equalAt(o.at(i), x, 0); eq || err != nil {
			return eq, err
		}
	}
	return false, nil
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
	case *generator:
		return "generator"
	case *loopObject:
		return "LoopContext"
	}
	return "builtin_function_or_method"
}
