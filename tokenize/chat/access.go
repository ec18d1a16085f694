package chat

import (
	"math"
	"strings"
	"unicode/utf8"
)

// attr evaluates v.name: first the attribute of the Python object, then the element.
func (r *run) attr(v Value, name string) (Value, error) {
	if everyObjectHas(name) {
		return undefinedMessage("access to attribute '" + name + "' of '" + typeName(v) + "' object is unsafe"), nil
	}
	if v.kind == Undefined {
		return v, undefinedError(v)
	}
	if v.kind == Dict {
		if m := dictMethod(name); m != nil {
			return safeMethod(v, name, m), r.pay(0, objectBytes)
		}
		if x, ok := v.Map().Get(name); ok {
			return x, nil
		}
		return missingAttr(v, name), nil
	}
	x, ok, err := r.ownAttr(v, name)
	if err != nil || ok {
		if _, ok := x.ref.(*method); ok && err == nil {
			err = r.pay(0, objectBytes)
		}
		return x, err
	}
	if r.isDictType(v) && name != "mro" {
		return v, typeErrorf("%w: the type dict[%s]", ErrUnsupported, quote(name))
	}
	return missingAttr(v, name), nil
}

// everyObjectHas reports whether the name is an attribute that comes before any element of a dict,
// and that the sandbox always refuses.
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
	if len(name) > maxShownName {
		name = strings.ToValidUTF8(name[:maxShownName], "") + "…"
	}
	return undefinedMessage("'" + typeName(v) + " object' has no attribute '" + name + "'")
}

const maxShownName = 80

// safeMethod returns a method as a value. If the method would change its object, it returns the
// sandbox's undefined value instead.
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

// ownAttr is getattr(v, name), for all values except dicts and undefined.
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
		if v.kind == Markup && (name == "escape" || name == "unescape" || name == "striptags") {
			return unsupportedMethod(v, name), true, nil
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
			if err := r.pay(len(o.body.params), listBytes+valueBytes*len(o.body.params)); err != nil {
				return v, true, err
			}
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
		case "explicit_caller":
			return BoolValue(o.body.explicit), true, nil
		}
	case *builtin:
		switch {
		case r.isDictType(v) || isDictClass(v) && name == "fromkeys":
			return dictClassAttr(v, name)
		case o.name == "cycler" && (name == "current" || name == "next" || name == "reset"):
			return v, true, typeErrorf("%w: the type cycler.%s", ErrUnsupported, name)
		}
	case *view:
		switch {
		case name == "mapping":
			return v, true, typeErrorf("%w: the attribute mapping of %s", ErrUnsupported, typeName(v))
		case name == "isdisjoint" && o.kind != 'v':
			return unsupportedMethod(v, name), true, nil
		}
	case *sharedIter:
		switch name {
		case "close", "send", "throw":
			if o.fn != nil {
				return unsupportedMethod(v, name), true, nil
			}
		case "gi_running", "gi_suspended", "gi_yieldfrom":
			if o.fn != nil {
				return v, true, typeErrorf("%w: the attribute %s of a generator", ErrUnsupported, name)
			}
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
			return objectOf(&method{v, name, func(_ *run, _ Value, a args) (Value, error) {
				if err := a.only(name, 0, 0); err != nil {
					return Value{}, err
				}
				x := o.items[o.pos]
				o.pos = (o.pos + 1) % len(o.items)
				return x, nil
			}}), true, nil
		case "reset":
			return objectOf(&method{v, name, func(_ *run, _ Value, a args) (Value, error) {
				o.pos = 0
				return NoneValue(), a.only(name, 0, 0)
			}}), true, nil
		case "current":
			return o.items[o.pos], true, nil
		case "items":
			return tupleOf(o.items...), true, nil
		case "pos":
			return IntValue(int64(o.pos)), true, nil
		}
	case *joiner:
		switch name {
		case "sep":
			return o.sep, true, nil
		case "used":
			return BoolValue(o.used), true, nil
		}
	}
	return Value{}, false, nil
}

// unsupportedMethod returns a method that Python has and this package does not support.
func unsupportedMethod(v Value, name string) Value {
	return objectOf(&method{v, name, func(*run, Value, args) (Value, error) {
		return Value{}, typeErrorf("%w: method '%s' of '%s'", ErrUnsupported, name, typeName(v))
	}})
}

// item evaluates v[key]: first the element, then the attribute of that name.
func (r *run) item(v, key Value) (Value, error) {
	switch v.kind {
	case Undefined:
		return v, undefinedError(v)
	case Dict:
		if r.comparer().hashable(key, 0) == nil {
			i, err := r.comparer().find(v.Map(), key)
			if err != nil {
				return v, err
			}
			if i >= 0 {
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
			if err := r.pay(len(v.s)>>6, 0); err != nil {
				return v, err
			}
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
