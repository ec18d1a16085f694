package chat

import "slices"

// Equal reports whether v and o are the same JSON data: values of the same kinds, and dicts with
// the same keys in the same order. 1 and 1.0 are not equal. A value of kind Object is not equal to
// any value.
func (v Value) Equal(o Value) bool {
	if v.kind != o.kind {
		return false
	}
	switch v.kind {
	case Undefined, None:
		return true
	case Bool, Int, Float:
		return v.n == o.n && v.s == o.s
	case String, Markup:
		return v.s == o.s
	case List, Tuple:
		return slices.EqualFunc(v.Items(), o.Items(), Value.Equal)
	case Dict:
		a, b := v.Map(), o.Map()
		return slices.EqualFunc(a.keys, b.keys, Value.Equal) && slices.EqualFunc(a.vals, b.vals, Value.Equal)
	case Object:
	}
	return false
}
