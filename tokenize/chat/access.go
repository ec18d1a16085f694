package chat

import (
	"math"
	"strings"
	"unicode/utf8"
)

// attr is v.name: the attribute of the Python object first, then the element.
func (r *run) attr(v Value, name string) (Value, error) {
	if everyObjectHas(name) {
		return undefinedMessage("access to attribute '" + name + "' of '" + typeName(v) + "' object is unsafe"), nil
	}
	if v.kind == Undefined {
		return v, undefinedError(v)
	}
	if v.kind == Dict {
		if m := dictMethod(name); m != nil {
			return safeMethod(v, name, m), nil
		}
		if x, ok := v.Map().Get(name); ok {
			return x, nil
		}
		return missingAttr(v, name), nil
	}
	x, ok, err := r.ownAttr(v, name)
	if err != nil || ok {
		return x, err
	}
	if r.isDictType(v) && name != "mro" {
		return v, typeErrorf("%w: the type dict[%s]", ErrUnsupported, quote(name))
	}
	return missingAttr(v, name), nil
}

// everyObjectHas names the attributes that come before any element of a dict and
// that the sandbox never gives away.
func everyObjectHas(name string) bool {
	if len(name) < 5 || name[0] != '_' || name[1] != '_' {
		return false
	}
	switch name[2 : len(name)-2] {
	case "class", "doc", "eq", "ne", "lt", "le", "gt", "ge", "hash", "str", "repr", "init", "new", "dir", "format",
		"getattribute", "setattr", "delattr", "reduce", "reduce_ex", "sizeof", "subclasshook", "init_subclass":
		return name[len(name)-2:] == "__"
	}
	return false
}

func missingAttr(v Value, name string) Value {
	return undefinedMessage("'" + typeName(v) + " object' has no attribute '" + name + "'")
}

// safeMethod is a method as a value, or what the sandbox gives instead of one
// that would change its object.
func safeMethod(v Value, name string, m methodFunc) Value {
	if mutates(v, name) {
		return undefinedMessage("access to attribute '" + name + "' of '" + typeName(v) + "' object is unsafe")
	}
	return objectOf(&method{v, name, m})
}

func mutates(v Value, name string) bool {
	switch v.kind {
	case Dict:
		switch name {
		case "clear", "pop", "popitem", "setdefault", "update":
			return true
		}
	case List:
		switch name {
		case "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove":
			return true
		}
	}
	return false
}

// ownAttr is getattr(v, name) for everything but dicts and undefined values.
func (r *run) ownAttr(v Value, name string) (Value, bool, error) {
	switch v.kind {
	case String, Markup:
		if m := stringMethod(name); m != nil {
			return objectOf(&method{v.plain(), name, m}), true, nil
		}
		if e := r.enum(v); e != nil {
			x, ok := e.attr(v, name)
			return x, ok, nil
		}
	case List, Tuple:
		s := v.ref.(*seq)
		if s.group {
			switch name {
			case "grouper":
				return s.items[0], true, nil
			case "list":
				return s.items[1], true, nil
			}
		}
		if m := listMethod(name, v.kind == List); m != nil {
			return safeMethod(v, name, m), true, nil
		}
	case Dict:
		if m := dictMethod(name); m != nil {
			return safeMethod(v, name, m), true, nil
		}
	case Bool, Int:
		switch name {
		case "real", "numerator":
			x, err := r.plus(v)
			return x, true, err
		case "imag":
			return IntValue(0), true, nil
		case "denominator":
			return IntValue(1), true, nil
		case "bit_length", "bit_count", "conjugate", "to_bytes", "from_bytes", "as_integer_ratio", "is_integer":
			return unsupportedMethod(v, name), true, nil
		}
	case Float:
		switch name {
		case "real":
			return v, true, nil
		case "imag":
			return FloatValue(0), true, nil
		case "is_integer":
			return objectOf(&method{v, name, func(_ *run, v Value, a args) (Value, error) {
				f := v.float()
				return BoolValue(f == math.Floor(f) && !math.IsInf(f, 0)), a.only(name, 0, 0)
			}}), true, nil
		case "hex", "fromhex", "as_integer_ratio", "conjugate":
			return unsupportedMethod(v, name), true, nil
		}
	}
	switch o := v.ref.(type) {
	case *namespace:
		if x, ok := o.attrs.Get(name); ok && v.kind == Object {
			if strings.HasPrefix(name, "_") {
				return undefinedMessage("access to attribute '" + name + "' of 'Namespace' object is unsafe"), true, nil
			}
			return x, true, nil
		}
	case *loopObject:
		return o.attr(r, name)
	case *macro:
		switch name {
		case "name":
			return strOf(o.body.name), true, nil
		case "arguments":
			names := make([]Value, len(o.body.params))
			for i, p := range o.body.params {
				names[i] = strOf(p.name)
			}
			return tupleOf(names...), true, nil
		case "catch_kwargs":
			return BoolValue(o.body.kwargs != nowhere), true, nil
		case "catch_varargs":
			return BoolValue(o.body.varargs != nowhere), true, nil
		case "caller":
			return BoolValue(o.body.caller != nowhere), true, nil
		}
	case *builtin:
		if r.isDictType(v) || isDictClass(v) && name == "fromkeys" {
			return dictClassAttr(v, name)
		}
	case *interval:
		switch name {
		case "start":
			return IntValue(o.start), true, nil
		case "stop":
			return IntValue(o.stop), true, nil
		case "step":
			return IntValue(o.step), true, nil
		case "index", "count":
			return objectOf(&method{v, name, func(r *run, v Value, a args) (Value, error) {
				items, err := r.collect(v)
				if err == nil {
					err = a.only(name, 1, 1)
				}
				if err != nil {
					return v, err
				}
				return listMethod(name, false)(r, ListValue(items...), a)
			}}), true, nil
		}
	case *cycler:
		switch name {
		case "next":
			return objectOf(&builtin{name, func(*run, args) (Value, error) {
				o.pos = (o.pos + 1) % len(o.items)
				return o.items[(o.pos+len(o.items)-1)%len(o.items)], nil
			}}), true, nil
		case "reset":
			return objectOf(&builtin{name, func(*run, args) (Value, error) {
				o.pos = 0
				return NoneValue(), nil
			}}), true, nil
		case "current":
			return o.items[o.pos], true, nil
		}
	}
	return Value{}, false, nil
}

func unsupportedMethod(v Value, name string) Value {
	return objectOf(&method{v, name, func(*run, Value, args) (Value, error) {
		return Value{}, typeErrorf("%w: method '%s' of '%s'", ErrUnsupported, name, typeName(v))
	}})
}

// item is v[key]: the element first, then the attribute of that name.
func (r *run) item(v, key Value) (Value, error) {
	switch v.kind {
	case Undefined:
		return v, undefinedError(v)
	case Dict:
		if hashable(key) {
			if i := v.Map().find(key); i >= 0 {
				return v.Map().vals[i], nil
			}
		}
	case List, Tuple:
		if key.isInt() {
			items := v.Items()
			if i, ok := index(key, len(items)); ok {
				return items[i], nil
			}
			return missingItem(v, key), nil
		}
	case String, Markup:
		if key.isInt() {
			n := len(v.s)
			ascii := isASCII(v.s)
			if !ascii {
				n = utf8.RuneCountInString(v.s)
			}
			i, ok := index(key, n)
			if !ok {
				return missingItem(v, key), nil
			}
			if !ascii {
				i = byteOffset(v.s, i)
			}
			return Value{kind: v.kind, s: v.s[i : i+runeLen(v.s[i:])]}, nil
		}
	case Object:
		if r.isDictType(v) {
			return v, typeErrorf("%w: the type dict[...]", ErrUnsupported)
		}
		if o, ok := v.ref.(*interval); ok && key.isInt() {
			if i, ok := index(key, int(o.len())); ok {
				return o.at(int64(i)), nil
			}
			return missingItem(v, key), nil
		}
	}
	if key.isStr() {
		x, ok, err := r.ownAttr(v, key.s)
		if err != nil || ok {
			return x, err
		}
	}
	return missingItem(v, key), nil
}

func missingItem(v, key Value) Value {
	if key.isStr() {
		return missingAttr(v, key.s)
	}
	return undefinedMessage("'" + typeName(v) + " object' has no such element")
}

// index turns a Python index into one from 0.
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

// slice is v[start:stop:step].
func (r *run) slice(v, start, stop, step Value) (Value, error) {
	n := 0
	switch {
	case v.kind == Undefined:
		return v, undefinedError(v)
	case v.isStr() || v.kind == List || v.kind == Tuple:
		n, _ = r.length(v)
	default:
		if o, ok := v.ref.(*interval); ok && v.kind == Object {
			return sliceInterval(o, start, stop, step)
		}
		return v, typeErrorf("'%s' object cannot be sliced", typeName(v))
	}
	from, to, by, err := bounds(n, start, stop, step)
	if err != nil {
		return v, err
	}
	size := int((&interval{int64(from), int64(to), by}).len())
	if v.isStr() {
		return r.sliceText(v, from, size, by)
	}
	items := v.Items()
	if by == 1 {
		if size == 0 {
			return Value{kind: v.kind, ref: &seq{}}, nil
		}
		return Value{kind: v.kind, ref: &seq{items: items[from : from+size : from+size]}}, nil
	}
	out := make([]Value, size)
	for i := range out {
		out[i] = items[from+i*int(by)]
	}
	return Value{kind: v.kind, ref: &seq{items: out}}, r.pay(size, valueBytes*size)
}

func (r *run) sliceText(v Value, from, size int, by int64) (Value, error) {
	if size == 0 {
		return Value{kind: v.kind}, nil
	}
	if err := r.pay(1+size>>4, 0); err != nil {
		return v, err
	}
	if by == 1 {
		if isASCII(v.s) {
			return Value{kind: v.kind, s: v.s[from : from+size]}, nil
		}
		a := byteOffset(v.s, from)
		return Value{kind: v.kind, s: v.s[a : a+byteOffset(v.s[a:], size)]}, nil
	}
	runes := []rune(v.s)
	var b strings.Builder
	for i := range size {
		b.WriteRune(runes[from+i*int(by)])
	}
	return Value{kind: v.kind, s: b.String()}, r.pay(len(runes), b.Len()+4*len(runes))
}

// bounds is slice.indices of Python.
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

func sliceIndex(v Value) (int64, error) {
	if !v.isInt() {
		return 0, typeErrorf("slice indices must be integers or None")
	}
	if n, ok := v.small(); ok {
		return min(max(n, -math.MaxInt64/2), math.MaxInt64/2), nil
	}
	if v.big().Sign() < 0 {
		return -math.MaxInt64 / 2, nil
	}
	return math.MaxInt64 / 2, nil
}

func sliceInterval(o *interval, start, stop, step Value) (Value, error) {
	from, to, by, err := bounds(int(o.len()), start, stop, step)
	if err != nil {
		return Value{}, err
	}
	return objectOf(&interval{o.start + int64(from)*o.step, o.start + int64(to)*o.step, o.step * by}), nil
}
