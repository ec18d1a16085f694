package chat

import (
	"strings"
	"unicode/utf8"
)

// attr evaluates v.name. It first looks for an attribute of the Python object, then for an element.
func (r *run) attr(v Value, name string) (Value, error) {
	if v.kind == Undefined {
		return v, undefinedError(v)
	}
	x, ok, err := r.ownAttr(v, name)
	if err != nil || ok {
		if _, ok := x.ref.(*method); ok && err == nil {
			err = r.pay(0, objectBytes)
		}
		return x, err
	}
	if v.kind == Dict {
		if x, ok := v.Map().Get(name); ok {
			return x, nil
		}
	}
	return missingAttr(v, name), nil
}

func missingAttr(v Value, name string) Value {
	if len(name) > maxShownName {
		name = strings.ToValidUTF8(name[:maxShownName], "") + "…"
	}
	return undefinedMessage("'" + typeName(v) + " object' has no attribute '" + name + "'")
}

const maxShownName = 80

// mutates reports whether the method of v with the given name changes v. The sandbox refuses such
// methods.
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

// ownAttr is the equivalent of Python's getattr(v, name). v must not be undefined.
func (r *run) ownAttr(v Value, name string) (Value, bool, error) {
	if err := checkAttr(v, name); err != nil {
		return v, false, err
	}
	if mutates(v, name) { // Jinja's sandbox returns an undefined value
		return undefinedMessage("access to attribute '" + name + "' of '" + typeName(v) + "' object is unsafe"), true, nil
	}
	switch v.kind {
	case String:
		if m := stringMethods[name]; m != nil {
			return objectOf(&method{v.plain(), name, m}), true, nil
		}
		if e := r.enum(v); e != nil {
			x, ok := e.attr(v, name)
			return x, ok, nil
		}
	case Dict:
		if m := dictMethods[name]; m != nil {
			return objectOf(&method{v, name, m}), true, nil
		}
	}
	switch o := v.ref.(type) {
	case *namespace:
		x, ok := o.attrs.Get(name)
		return x, ok, nil
	case *loopObject:
		return o.attr(r, name)
	}
	return Value{}, false, nil
}

// item evaluates v[key]. It first looks for an element, then for an attribute with that name.
func (r *run) item(v, key Value) (Value, error) {
	switch v.kind {
	case Undefined:
		return v, undefinedError(v)
	case Dict:
		if key.kind != List && key.kind != Dict {
			i, err := r.find(v.Map(), key)
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
		if o, ok := v.ref.(*rangeObject); ok && key.isInt() {
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
