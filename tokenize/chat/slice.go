package chat

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// index converts a Python index to an index from 0. It reports false if it is out of range.
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

// slice evaluates v[start:stop:step].
func (r *run) slice(v, start, stop, step Value) (Value, error) {
	n := 0
	switch {
	case v.kind == Undefined:
		return v, undefinedError(v)
	case v.isStr() || v.kind == List || v.kind == Tuple:
		n, _ = r.length(v)
	default:
		if _, ok := v.ref.(*rangeObject); ok {
			return v, unsupportedf("a slice of a range")
		}
		return v, fmt.Errorf("%w: '%s' object cannot be sliced", errNoSlice, typeName(v))
	}
	from, to, by, err := bounds(n, start, stop, step)
	if err != nil {
		return v, err
	}
	size := int((&rangeObject{int64(from), int64(to), by}).len())
	if v.isStr() {
		return r.sliceText(v, from, size, by)
	}
	items := v.Items()
	if by == 1 {
		if size == 0 {
			return Value{kind: v.kind, ref: &seq{}}, nil
		}
		return Value{kind: v.kind, ref: &seq{items: items[from : from+size : from+size]}}, r.pay(0, listBytes)
	}
	if err := r.pay(size, times(size, valueBytes)); err != nil {
		return v, err
	}
	out := make([]Value, size)
	for i := range out {
		out[i] = items[from+i*int(by)]
	}
	return Value{kind: v.kind, ref: &seq{items: out}}, nil
}

func (r *run) sliceText(v Value, from, size int, by int64) (Value, error) {
	if size == 0 {
		return Value{kind: v.kind}, nil
	}
	if err := r.pay(1+len(v.s)>>5, 0); err != nil {
		return v, err
	}
	if by == 1 {
		if isASCII(v.s) {
			return Value{kind: v.kind, s: v.s[from : from+size]}, nil
		}
		a := byteOffset(v.s, from)
		return Value{kind: v.kind, s: v.s[a : a+byteOffset(v.s[a:], size)]}, nil
	}
	if err := r.pay(len(v.s)>>2, times(len(v.s), 8)); err != nil {
		return v, err
	}
	runes := []rune(v.s)
	var b strings.Builder
	b.Grow(min(len(v.s), utf8.UTFMax*size))
	for i := range size {
		b.WriteRune(runes[from+i*int(by)])
	}
	return Value{kind: v.kind, s: b.String()}, nil
}

// bounds is Python's slice.indices.
func bounds(n int, start, stop, step Value) (from, to int, by int64, err error) {
	by = 1
	if step.kind != None {
		if by, err = sliceIndex(step); err != nil {
			return 0, 0, 0, err
		}
		if by == 0 {
			return 0, 0, 0, valueErrorf("slice step cannot be zero")
		}
		by = min(max(by, -math.MaxInt32), math.MaxInt32) // no sequence is longer
	}
	lower, upper := 0, n
	if by < 0 {
		lower, upper = -1, n-1
	}
	place := func(v Value, def int) (int, error) {
		if v.kind == None {
			return def, nil
		}
		i, err := sliceIndex(v)
		if err != nil {
			return 0, err
		}
		if i < 0 {
			i += int64(n)
			return int(max(i, int64(lower))), nil
		}
		return int(min(i, int64(upper))), nil
	}
	if by < 0 {
		lower, upper = upper, lower
	}
	first, last := lower, upper
	if by < 0 {
		lower, upper = upper, lower
	}
	if from, err = place(start, first); err != nil {
		return 0, 0, 0, err
	}
	to, err = place(stop, last)
	return from, to, by, err
}

// errNoSlice is wrapped by the type errors of slicing.
var errNoSlice = errors.New("type error")

func sliceIndex(v Value) (int64, error) {
	if !v.isInt() {
		return 0, fmt.Errorf("%w: slice indices must be integers or None", errNoSlice)
	}
	if n, ok := v.small(); ok {
		return min(max(n, -math.MaxInt64/2), math.MaxInt64/2), nil
	}
	if v.big().Sign() < 0 {
		return -math.MaxInt64 / 2, nil
	}
	return math.MaxInt64 / 2, nil
}
