package chat

// dictMethod returns a dict method, or nil. The sandbox refuses methods that change a dict.
func dictMethod(name string) methodFunc {
	switch name {
	case "get":
		return dictGet
	case "items":
		return dictView(name, 'i')
	case "keys":
		return dictView(name, 'k')
	case "values":
		return dictView(name, 'v')
	case "copy":
		return func(_ *run, v Value, a args) (Value, error) { return v, a.only("copy", 0, 0) }
	case "fromkeys":
		return func(r *run, _ Value, a args) (Value, error) { return dictFromKeys(r, a) }
	case "clear", "pop", "popitem", "setdefault", "update":
		return refused(name)
	}
	return nil
}

func isDictClass(v Value) bool {
	b, ok := v.ref.(*builtin)
	return ok && b.name == "dict"
}

// dictClassAttr returns fromkeys, or a method whose first argument is the dict.
func dictClassAttr(class Value, name string) (Value, bool, error) {
	m := dictMethod(name)
	switch {
	case m == nil:
		return Value{}, false, nil
	case name == "fromkeys":
		return objectOf(&method{class, name, m}), true, nil
	}
	return objectOf(&method{class, name, func(r *run, _ Value, a args) (Value, error) {
		if len(a.pos) == 0 || a.pos[0].kind != Dict {
			return Value{}, typeErrorf("dict.%s needs a dict as its first argument", name)
		}
		if mutates(a.pos[0], name) {
			return Value{}, typeErrorf("%w: dict.%s, which changes a dict", ErrUnsupported, name)
		}
		return m(r, a.pos[0], args{a.pos[1:], a.kw})
	}}), true, nil
}

func refused(name string) methodFunc {
	return func(_ *run, v Value, _ args) (Value, error) {
		return v, typeErrorf("access to '%s' of '%s' object is unsafe", name, typeName(v))
	}
}

func dictGet(r *run, v Value, a args) (Value, error) {
	if err := a.only("get", 1, 2); err != nil {
		return v, err
	}
	key := a.pos[0]
	i, err := r.find(v.Map(), key)
	if err != nil {
		return v, err
	}
	if i >= 0 {
		return v.Map().vals[i], nil
	}
	if len(a.pos) == 2 {
		return a.pos[1], nil
	}
	return NoneValue(), nil
}

func dictView(name string, kind byte) methodFunc {
	return func(_ *run, v Value, a args) (Value, error) {
		return objectOf(&view{v.Map(), kind}), a.only(name, 0, 0)
	}
}

func dictFromKeys(r *run, a args) (Value, error) {
	if err := a.only("fromkeys", 1, 2); err != nil {
		return Value{}, err
	}
	keys, err := r.collect(a.pos[0])
	if err != nil {
		return Value{}, err
	}
	x := NoneValue()
	if len(a.pos) == 2 {
		x = a.pos[1]
	}
	m := NewMap(0)
	for _, k := range keys {
		if err := r.put(m, k, x); err != nil {
			return Value{}, err
		}
	}
	return MapValue(m), nil
}

// listMethod returns the method of list or tuple of that name, or nil.
func listMethod(name string, list bool) methodFunc {
	switch name {
	case "index":
		return seqIndex
	case "count":
		return seqCount
	}
	if !list {
		return nil
	}
	switch name {
	case "copy":
		return func(_ *run, v Value, a args) (Value, error) { return v, a.only("copy", 0, 0) }
	case "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove":
		return refused(name)
	}
	return nil
}

func seqIndex(r *run, v Value, a args) (Value, error) {
	if err := a.only("index", 1, 3); err != nil {
		return v, err
	}
	items := v.Items()
	limits := [2]Value{NoneValue(), NoneValue()}
	copy(limits[:], a.pos[1:])
	for _, x := range a.pos[1:] {
		if !x.isInt() {
			return v, typeErrorf("slice indices must be integers")
		}
	}
	from, to, _, err := bounds(len(items), limits[0], limits[1], NoneValue())
	if err != nil {
		return v, err
	}
	c := r.comparer()
	for i := from; i < to; i++ {
		if eq, err := c.same(items[i], a.pos[0], 0); eq || err != nil {
			return IntValue(int64(i)), err
		}
	}
	return v, valueErrorf("value is not in the list")
}

func seqCount(r *run, v Value, a args) (Value, error) {
	if err := a.only("count", 1, 1); err != nil {
		return v, err
	}
	c := r.comparer()
	n := int64(0)
	for _, x := range v.Items() {
		eq, err := c.same(x, a.pos[0], 0)
		if err != nil {
			return v, err
		}
		if eq {
			n++
		}
	}
	return IntValue(n), nil
}
