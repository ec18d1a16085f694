package chat

import (
	"math"
	"strconv"
	"strings"
)

type binop uint8

const (
	opAdd binop = iota
	opSub
	opMul
	opDiv
	opFloorDiv
	opMod
	cmpEq
	cmpNe
	cmpLt
	cmpLe
	cmpGt
	cmpGe
	cmpIn
	cmpNotIn
)

var opNames = [...]string{"+", "-", "*", "/", "//", "%"}

// maxIntDigits is the largest number of digits that Python converts between an int and text.
const maxIntDigits = 4300

func truth(v Value) bool {
	switch v.kind {
	case Undefined, None:
		return false
	case Bool, Int:
		return v.n != 0 || v.s != ""
	case Float:
		return v.float() != 0
	case String, Markup:
		return v.s != ""
	case List, Tuple:
		return len(v.ref.(*seq).items) > 0
	case Dict:
		return v.ref.(*Map).Len() > 0
	}
	switch o := v.ref.(type) {
	case *rangeObject:
		return o.len() > 0
	case *view:
		return o.of.Len() > 0
	}
	return true
}

func (r *run) binary(op binop, a, b Value) (Value, error) {
	// The most common case comes first.
	if op == opAdd && a.kind == String && b.kind == String {
		if err := r.pay(0, len(a.s)+len(b.s)); err != nil {
			return a, err
		}
		return strOf(a.s + b.s), nil
	}
	if a.kind == Undefined {
		return a, undefinedError(a)
	}
	if op == opMod && a.isStr() {
		return a, unsupportedf("the operator %% on a string")
	}
	if b.kind == Undefined {
		return b, undefinedError(b)
	}
	if isNumber(a) && isNumber(b) {
		if a.kind == Float || b.kind == Float {
			return floatOp(op, a, b)
		}
		return intOp(op, a, b)
	}
	switch op {
	case opAdd:
		switch {
		case a.isStr() && b.isStr(): // at least one is Markup, so the other is escaped
			x, err := r.escape(r.shown(a))
			if err != nil {
				return a, err
			}
			y, err := r.escape(r.shown(b))
			if err == nil {
				err = r.pay(0, len(x)+len(y))
			}
			if err != nil {
				return b, err
			}
			return markupOf(x + y), nil
		case (a.kind == List || a.kind == Tuple) && a.kind == b.kind:
			x, y := a.Items(), b.Items()
			if err := r.pay(len(x)+len(y), times(len(x)+len(y), valueBytes)); err != nil {
				return a, err
			}
			return Value{kind: a.kind, ref: &seq{items: append(append(make([]Value, 0, len(x)+len(y)), x...), y...)}}, nil
		}
	case opMul:
		if b.isInt() {
			a, b = b, a
		}
		if a.isInt() {
			return r.repeat(b, a)
		}
	}
	return a, typeErrorf("unsupported operand types for %s: '%s' and '%s'", opNames[op], typeName(a), typeName(b))
}

func isNumber(v Value) bool { return v.kind == Int || v.kind == Float || v.kind == Bool }

// repeat multiplies a string by an int.
func (r *run) repeat(v, times Value) (Value, error) {
	if v.kind == List || v.kind == Tuple {
		return v, unsupportedf("a %s multiplied by an int", typeName(v))
	}
	if !v.isStr() {
		return v, typeErrorf("can't multiply '%s' by an int", typeName(v))
	}
	n, ok := times.small()
	if !ok {
		return v, errHuge()
	}
	n = max(n, 0)
	size := int64(len(v.s))
	if size > 0 && n > r.bytes/size {
		return v, limitErrorf("a value of %d bytes repeated %d times", size, n)
	}
	if err := r.pay(int(size*n)>>8, int(size*n)); err != nil || size == 0 {
		return Value{kind: v.kind}, err
	}
	return Value{kind: v.kind, s: strings.Repeat(v.s, int(n))}, nil
}

func intOp(op binop, a, b Value) (Value, error) {
	x, ok1 := a.small()
	y, ok2 := b.small()
	if !ok1 || !ok2 {
		return a, errHuge()
	}
	if op >= opDiv && y == 0 {
		return a, valueErrorf("division by zero")
	}
	switch op {
	case opAdd:
		if z := x + y; (z > x) == (y > 0) {
			return IntValue(z), nil
		}
	case opSub:
		if z := x - y; (z < x) == (y > 0) {
			return IntValue(z), nil
		}
	case opMul:
		if x == 0 || y == 0 {
			return IntValue(0), nil
		}
		if z := x * y; z/y == x && (x != -1 || y != math.MinInt64) && (y != -1 || x != math.MinInt64) {
			return IntValue(z), nil
		}
	case opDiv:
		f, exact1 := exactFloat(a)
		g, exact2 := exactFloat(b)
		if exact1 && exact2 {
			return FloatValue(f / g), nil
		}
	case opFloorDiv, opMod:
		q, m := x/y, x%y
		if m != 0 && (m < 0) != (y < 0) {
			q, m = q-1, m+y
		}
		if op == opMod {
			return IntValue(m), nil
		}
		if x != math.MinInt64 || y != -1 {
			return IntValue(q), nil
		}
	}
	return a, errHuge()
}

func toFloat(v Value) (float64, error) {
	if v.kind == Float {
		return v.float(), nil
	}
	if n, ok := v.small(); ok {
		return float64(n), nil
	}
	f, err := strconv.ParseFloat(v.s, 64)
	if err != nil {
		return 0, valueErrorf("int too large to convert to float")
	}
	return f, nil
}

// exactFloat returns a number as a float, and whether the conversion is certainly exact.
func exactFloat(v Value) (float64, bool) {
	if v.kind == Float {
		return v.float(), true
	}
	n, ok := v.small()
	return float64(n), ok && n >= -1<<53 && n <= 1<<53
}

func floatOp(op binop, a, b Value) (Value, error) {
	x, err := toFloat(a)
	if err != nil {
		return a, err
	}
	y, err := toFloat(b)
	if err != nil {
		return b, err
	}
	switch op {
	case opAdd:
		return FloatValue(x + y), nil
	case opSub:
		return FloatValue(x - y), nil
	case opMul:
		return FloatValue(x * y), nil
	case opDiv:
		if y == 0 {
			return a, valueErrorf("float division by zero")
		}
		return FloatValue(x / y), nil
	}
	return a, unsupportedf("the operator %s on a float", opNames[op])
}

// signed returns +v or -v.
func signed(op binop, v Value) (Value, error) {
	switch {
	case v.kind == Undefined:
		return v, undefinedError(v)
	case !isNumber(v):
		return v, typeErrorf("bad operand type for unary %s: '%s'", opNames[op], typeName(v))
	case v.kind == Float && op == opSub:
		return FloatValue(-v.float()), nil
	case v.kind == Float:
		return v, nil
	case op == opSub:
		return intOp(opSub, IntValue(0), v)
	}
	return Value{kind: Int, n: v.n, s: v.s}, nil
}
