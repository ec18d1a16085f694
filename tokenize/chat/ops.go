package chat

import (
	"math"
	"math/big"
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
)

var opNames = [...]string{"+", "-", "*", "/", "//", "%"}

type cmpop uint8

const (
	cmpEq cmpop = iota
	cmpNe
	cmpLt
	cmpLe
	cmpGt
	cmpGe
	cmpIn
	cmpNotIn
)

// maxIntDigits is the number of digits up to which Python converts between int and text. maxIntBits
// keeps the arithmetic on larger ints cheap.
const (
	maxIntDigits = 4300
	maxIntBits   = 1 << 16
)

func (r *run) truth(v Value) bool {
	switch v.kind {
	case Undefined, None:
		return false
	case Bool, Int:
		return v.n != 0 || v.ref != nil
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
	case *loopObject:
		n, err := o.len(r)
		return err != nil || n > 0
	}
	return true
}

func (r *run) binary(op binop, a, b Value) (Value, error) {
	// The most common case first.
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
		return a, unsupportedf("the operator %% on a text")
	}
	if b.kind == Undefined {
		return b, undefinedError(b)
	}
	if isNumber(a) && isNumber(b) {
		if a.kind == Float || b.kind == Float {
			return floatOp(op, a, b)
		}
		return r.intOp(op, a, b)
	}
	switch op {
	case opAdd:
		switch {
		case a.isStr() && b.isStr(): // at least one is Markup, which escapes the other
			x, err := r.escapeValue(r.shown(a))
			if err != nil {
				return a, err
			}
			y, err := r.escapeValue(r.shown(b))
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

// repeat multiplies a sequence by an int.
func (r *run) repeat(v, times Value) (Value, error) {
	n, ok := times.small()
	if !ok {
		if times.big().Sign() > 0 {
			return v, limitErrorf("a value repeated %s times", times.big().Text(10))
		}
		return v, valueErrorf("cannot fit 'int' into an index-sized integer") // Python ignores the sign
	}
	n = max(n, 0)
	size := int64(0)
	switch v.kind {
	case String, Markup:
		size = int64(len(v.s))
	case List, Tuple:
		size = valueBytes * int64(len(v.Items()))
	default:
		return v, typeErrorf("can't multiply '%s' by an int", typeName(v))
	}
	if size > 0 && n > r.bytes/size {
		return v, limitErrorf("a value of %d bytes repeated %d times", size, n)
	}
	if err := r.pay(int(size*n)>>8, listBytes+int(size*n)); err != nil {
		return v, err
	}
	if v.isStr() {
		return Value{kind: v.kind, s: strings.Repeat(v.s, int(n))}, nil
	}
	items := v.Items()
	if len(items) == 0 {
		return v, nil
	}
	out := make([]Value, 0, len(items)*int(n))
	for range n {
		out = append(out, items...)
	}
	return Value{kind: v.kind, ref: &seq{items: out}}, nil
}

func (r *run) intOp(op binop, a, b Value) (Value, error) {
	x, ok1 := a.small()
	y, ok2 := b.small()
	if ok1 && ok2 {
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
		case opFloorDiv, opMod:
			if y != 0 && y != -1 {
				q, m := x/y, x%y
				if m != 0 && (m < 0) != (y < 0) {
					q, m = q-1, m+y
				}
				if op == opMod {
					return IntValue(m), nil
				}
				return IntValue(q), nil
			}
		}
	}
	return r.bigOp(op, a.big(), b.big())
}

func (r *run) bigOp(op binop, x, y *big.Int) (Value, error) {
	if err := r.pay(1+(x.BitLen()+y.BitLen())>>6, (x.BitLen()+y.BitLen())>>3); err != nil {
		return Value{}, err
	}
	z := new(big.Int)
	switch op {
	case opAdd:
		z.Add(x, y)
	case opSub:
		z.Sub(x, y)
	case opMul:
		if x.BitLen()+y.BitLen() > maxIntBits {
			return Value{}, limitErrorf("integer of more than %d bits", maxIntBits)
		}
		z.Mul(x, y)
	case opDiv:
		if y.Sign() == 0 {
			return Value{}, valueErrorf("division by zero")
		}
		f, _ := new(big.Rat).SetFrac(x, y).Float64()
		if math.IsInf(f, 0) {
			return Value{}, valueErrorf("integer division result too large for a float")
		}
		if f == 0 && (x.Sign() < 0) != (y.Sign() < 0) {
			f = math.Copysign(0, -1)
		}
		return FloatValue(f), nil
	case opFloorDiv, opMod:
		if y.Sign() == 0 {
			return Value{}, valueErrorf("integer division or modulo by zero")
		}
		m := new(big.Int)
		z.QuoRem(x, y, m)
		if m.Sign() != 0 && m.Sign() != y.Sign() {
			z.Sub(z, big.NewInt(1))
			m.Add(m, y)
		}
		if op == opMod {
			z = m
		}
	}
	if z.BitLen() > maxIntBits {
		return Value{}, limitErrorf("integer of more than %d bits", maxIntBits)
	}
	return BigValue(z), nil
}

func toFloat(v Value) (float64, error) {
	if v.kind == Float {
		return v.float(), nil
	}
	if n, ok := v.small(); ok {
		return float64(n), nil
	}
	f, _ := new(big.Float).SetInt(v.big()).Float64()
	if math.IsInf(f, 0) {
		return 0, valueErrorf("int too large to convert to float")
	}
	return f, nil
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
	}
	if y == 0 {
		return a, valueErrorf("float division by zero")
	}
	if op == opDiv {
		return FloatValue(x / y), nil
	}
	// Python's float_divmod.
	m := math.Mod(x, y)
	q := (x - m) / y
	if m != 0 {
		if (y < 0) != (m < 0) {
			m += y
			q--
		}
	} else {
		m = math.Copysign(0, y)
	}
	if op == opMod {
		return FloatValue(m), nil
	}
	if q == 0 {
		return FloatValue(math.Copysign(0, x/y)), nil
	}
	f := math.Floor(q)
	if q-f > 0.5 {
		f++
	}
	return FloatValue(f), nil
}

func (r *run) negate(v Value) (Value, error) {
	switch {
	case v.kind == Undefined:
		return v, undefinedError(v)
	case v.kind == Float:
		return FloatValue(-v.float()), nil
	case v.isInt():
		return r.intOp(opSub, IntValue(0), v)
	}
	return v, typeErrorf("bad operand type for unary -: '%s'", typeName(v))
}

func (r *run) plus(v Value) (Value, error) {
	switch v.kind {
	case Undefined:
		return v, undefinedError(v)
	case Float, Int:
		return v, nil
	case Bool:
		return IntValue(v.n), nil
	}
	return v, typeErrorf("bad operand type for unary +: '%s'", typeName(v))
}
