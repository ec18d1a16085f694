package chat

import (
	"math"
	"strings"
	"unicode/utf8"
)

// A Kind is the Python type of a Value.
type Kind uint8

// The kinds. Object includes generators, namespaces, macros, ranges and views.
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

// A Value is one Python value as a template sees it. The zero Value is an Undefined without a name.
//
// Values are immutable and safe for concurrent use. A Value owns the slices and dicts that were
// passed to its constructor.
type Value struct {
	kind Kind
	// n is an Int that fits in 64 bits, a Bool as 0 or 1, or the bits of a Float.
	n int64
	// s is the text of a String or Markup (always valid UTF-8), the message of an Undefined, or the
	// decimal digits of an Int that does not fit in n.
	s string
	// ref is a *seq (List, Tuple), *Map (Dict), *enum (String that is an enum member) or the object
	// itself.
	ref any
}

type seq struct {
	items []Value
}

// NoneValue returns Python's None, which is null in JSON.
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

// FloatValue returns a float.
func FloatValue(f float64) Value { return Value{kind: Float, n: int64(math.Float64bits(f))} }

// StringValue returns a str. Each run of invalid UTF-8 becomes one U+FFFD.
func StringValue(s string) Value {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return Value{kind: String, s: s}
}

// ListValue returns a list. The list owns items.
func ListValue(items ...Value) Value { return Value{kind: List, ref: &seq{items: items}} }

// MapValue returns the dict m. The Map must not change afterwards.
func MapValue(m *Map) Value { return Value{kind: Dict, ref: m} }

func strOf(s string) Value               { return Value{kind: String, s: s} }
func markupOf(s string) Value            { return Value{kind: Markup, s: s} }
func objectOf(o any) Value               { return Value{kind: Object, ref: o} }
func undefinedName(name string) Value    { return Value{kind: Undefined, s: name, n: 1} }
func undefinedMessage(text string) Value { return Value{kind: Undefined, s: text} }

// Kind returns the kind of v.
func (v Value) Kind() Kind { return v.kind }

// Text returns the text of v, and whether v is a String or Markup.
func (v Value) Text() (string, bool) {
	return v.s, v.kind == String || v.kind == Markup
}

// Int returns the value of v, and whether v is an Int that fits in 64 bits.
func (v Value) Int() (int64, bool) {
	n, ok := v.small()
	return n, ok && v.kind == Int
}

// Map returns the dict, or nil. The caller must not change it.
func (v Value) Map() *Map {
	if v.kind != Dict {
		return nil
	}
	return v.ref.(*Map)
}

// Items returns the elements of a List or Tuple, otherwise nil. The caller must not change them.
func (v Value) Items() []Value {
	if v.kind != List && v.kind != Tuple {
		return nil
	}
	return v.ref.(*seq).items
}

func (v Value) isStr() bool    { return v.kind == String || v.kind == Markup }
func (v Value) plain() Value   { return Value{kind: v.kind, s: v.s} }
func (v Value) float() float64 { return math.Float64frombits(uint64(v.n)) }

// isInt reports whether v is an int in Python, which includes bool.
func (v Value) isInt() bool { return v.kind == Int || v.kind == Bool }

// small returns the value of v, and whether v is an int or bool that fits in 64 bits.
func (v Value) small() (int64, bool) { return v.n, v.isInt() && v.s == "" }

// undefinedText returns the error message for an undefined value. Such a value contains either the
// name that was not found (n is 1) or a whole message.
func (v Value) undefinedText() string {
	if v.n == 1 || v.s == "" {
		return quote(v.s) + " is undefined"
	}
	return v.s
}
