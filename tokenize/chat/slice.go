package chat

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// index converts a Python index, which can be negative, to an index that counts from the start. It
// returns false if the index is out of range.
func index(key Value, n int) (int, bool) {
	i, ok := key.small()
	if !ok {
		return 0, false
	}
	if i < 0 {
		i += int64(n)
	}
	return int(i), i >= 0 && i < int64(n)
}

// slice evaluates v[start:stop] or v[::-1].
func (r *run) slice(v, start, stop Value, reverse bool) (Value, error) {
	if v.kind == Undefined {
		return v, undefinedError(v)
	}
	if !v.isStr() && v.kind != List && v.kind != Tuple {
		return v, unsupportedf("a slice of '%s'", typeName(v))
	}
	n, err := r.length(v)
	if err != nil {
		return v, err
	}
	if reverse {
		return r.reversed(v, n)
	}
	from, err := sliceEnd(start, n, 0)
	if err != nil {
		return v, err
	}
	to, err := sliceEnd(stop, n, n)
	if err != nil {
		return v, err
	}
	to = max(from, to)
	if !v.isStr() {
		return Value{kind: v.kind, ref: &seq{items: v.Items()[from:to:to]}}, r.pay(0, listBytes)
	}
	if err := r.pay(1+len(v.s)>>5, 0); err != nil {
		return v, err
	}
	if !isASCII(v.s) {
		from = byteOffset(v.s, from)
		to = from + byteOffset(v.s[from:], to-utf8.RuneCountInString(v.s[:from]))
	}
	return Value{kind: v.kind, s: v.s[from:to]}, nil
}

// reversed returns the n elements or characters of v in reverse order.
func (r *run) reversed(v Value, n int) (Value, error) {
	if !v.isStr() {
		if err := r.pay(n, listBytes+times(n, valueBytes)); err != nil {
			return v, err
		}
		items := slices.Clone(v.Items())
		slices.Reverse(items)
		return Value{kind: v.kind, ref: &seq{items: items}}, nil
	}
	if err := r.pay(len(v.s)>>2, len(v.s)); err != nil {
		return v, err
	}
	var b strings.Builder
	b.Grow(len(v.s))
	for s := v.s; s != ""; {
		_, size := utf8.DecodeLastRuneInString(s)
		b.WriteString(s[len(s)-size:])
		s = s[:len(s)-size]
	}
	return Value{kind: v.kind, s: b.String()}, nil
}

// sliceEnd returns the position of one end of a slice of n elements, or def for None.
func sliceEnd(v Value, n, def int) (int, error) {
	if v.kind == None {
		return def, nil
	}
	i, ok := v.small()
	if !ok {
		return 0, unsupportedf("a slice index that is not an int of 64 bits")
	}
	if i < 0 {
		i += int64(n)
	}
	return int(min(max(i, 0), int64(n))), nil
}
