package chat

import (
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

// A Kind says what a Value is, in Python's terms.
type Kind uint8

// The kinds. Object stands for everything that a template makes for itself:
// iterators, namespaces, macros, ranges, views.
const (
	Undefined Kind = iota
	None
	Bool
	Int
	Float
	String
	Markup
	List
	Tuple
	Dict
	Object
)

// A Value is one Python value as a template sees it. The zero Value is an
// Undefined without a name.
//
// Values are immutable and may be shared by any number of renders. The slices
// and dicts given to the constructors belong to the Value afterwards.
type Value struct {
	kind Kind
	// n holds an Int that fits, a Bool as 0 or 1, and the bits of a Float.
	n int64
	// s holds a String or Markup, always valid UTF-8, and the message of an
	// Undefined.
	s string
	// ref holds *seq (List, Tuple), *Map (Dict), *big.Int (an Int that does not
	// fit n), *enum (a String that is more than a str) or the object itself.
	ref any
}

// A seq is the body of a list or a tuple.
type seq struct {
	items []Value
	// group marks the pairs that groupby yields, which have names as well.
	group bool
}

// NoneValue is Python's None, JSON's null.
func NoneValue() Value { return Value{kind: None} }

// BoolValue returns True or False.
func BoolValue(b bool) Value {
	if b {
		return Value{kind: Bool, n: 1}
	}
	return Value{kind: Bool}
}

// IntValue returns an int.
func IntValue(n int64) Value { return Value{kind: Int, n: n} }

// BigValue returns an int of any size. It keeps n.
func BigValue(n *big.Int) Value {
	if n.IsInt64() {
		return IntValue(n.Int64())
	}
	return Value{kind: Int, ref: n}
}

// FloatValue returns a float.
func FloatValue(f float64) Value { return Value{kind: Float, n: int64(math.Float64bits(f))} }

// StringValue returns a str. Bytes that are not valid UTF-8 become U+FFFD, one
// for each run of them.
func StringValue(s string) Value {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return Value{kind: String, s: s}
}

// ListValue returns a list of the values, which it keeps.
func ListValue(items ...Value) Value { return Value{kind: List, ref: &seq{items: items}} }

// MapValue returns the dict m, which must not change afterwards.
func MapValue(m *Map) Value { return Value{kind: Dict, ref: m} }

func strOf(s string) Value               { return Value{kind: String, s: s} }
func markupOf(s string) Value            { return Value{kind: Markup, s: s} }
func tupleOf(items ...Value) Value       { return Value{kind: Tuple, ref: &seq{items: items}} }
func objectOf(o any) Value               { return Value{kind: Object, ref: o} }
func undefinedName(name string) Value    { return Value{kind: Undefined, s: name, n: 1} }
func undefinedMessage(text string) Value { return Value{kind: Undefined, s: text} }

// Kind says what v is.
func (v Value) Kind() Kind { return v.kind }

// Text returns the text of a String or Markup, and whether v is one.
func (v Value) Text() (string, bool) {
	return v.s, v.kind == String || v.kind == Markup
}

// Int returns the value of an Int of at most 64 bits, and whether v is one.
func (v Value) Int() (int64, bool) {
	n, ok := v.small()
	return n, ok && v.kind == Int
}

// Map returns the dict that v is, or nil. It must not be changed.
func (v Value) Map() *Map {
	if v.kind != Dict {
		return nil
	}
	return v.ref.(*Map)
}

// Items returns the elements of a List or Tuple, else nil. They must not be
// changed.
func (v Value) Items() []Value {
	if v.kind != List && v.kind != Tuple {
		return nil
	}
	return v.ref.(*seq).items
}

func (v Value) isStr() bool    { return v.kind == String || v.kind == Markup }
func (v Value) plain() Value   { return Value{kind: v.kind, s: v.s} } // of a String or Markup
func (v Value) float() float64 { return math.Float64frombits(uint64(v.n)) }

// isInt reports whether v is an int in Python's sense: a bool is one.
func (v Value) isInt() bool { return v.kind == Int || v.kind == Bool }

// small returns the value of an int that fits 64 bits.
func (v Value) small() (int64, bool) {
	if v.kind == Int && v.ref != nil {
		return 0, false
	}
	return v.n, v.kind == Int || v.kind == Bool
}

// big returns the value of an int of any size. The result must not be changed.
func (v Value) big() *big.Int {
	if v.ref != nil {
		return v.ref.(*big.Int)
	}
	return big.NewInt(v.n)
}

// An undefined value carries either the name that was not found (n is 1) or a
// whole sentence.
func (v Value) undefinedText() string {
	if v.n == 1 || v.s == "" {
		return quote(v.s) + " is undefined"
	}
	return v.s
}
