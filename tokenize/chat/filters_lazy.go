package chat

// The filters that return a generator (map, select …, batch, slice), and groupby.

import (
	"errors"
	"slices"
)

// keep copies the arguments of a call for a generator that outlives the call.
func (r *run) keep(a args) (args, error) {
	if err := r.pay((len(a.pos)+len(a.kw))>>2, valueBytes*(len(a.pos)+2*len(a.kw))); err != nil {
		return a, err
	}
	return args{append([]Value(nil), a.pos...), append([]keyword(nil), a.kw...)}, nil
}

// notAgain refuses keywords for parameters that the filter itself sets.
func (a args) notAgain(what string, names ...string) error {
	for _, k := range a.kw {
		if slices.Contains(names, k.name) {
			return typeErrorf("%s got multiple values for argument '%s'", what, k.name)
		}
	}
	return nil
}

func filterMap(r *run, v Value, a args) (Value, error) {
	if err := a.notAgain("map", "context", "value"); err != nil {
		return v, err
	}
	a, err := r.keep(a)
	if err != nil {
		return v, err
	}
	var get getterFunc
	var it iter
	return r.lazy(func(r *run) (Value, bool, error) {
		if get == nil {
			if !r.truth(v) {
				return Value{}, false, nil
			}
			var err error
			if get, err = r.mapper(a); err != nil {
				return Value{}, false, err
			}
			if it, err = r.iterate(v); err != nil {
				return Value{}, false, err
			}
		}
		x, ok, err := it.next(r)
		if err != nil || !ok {
			return x, false, err
		}
		x, err = get(x)
		return x, err == nil, err
	})
}

// mapper returns the function that map applies: a filter by name, or an attribute.
func (r *run) mapper(a args) (getterFunc, error) {
	if len(a.pos) == 0 {
		path, ok := a.keyword("attribute")
		if !ok {
			return nil, errors.New("map requires a filter argument")
		}
		def := NoneValue()
		for _, k := range a.kw {
			switch k.name {
			case "attribute":
			case "default":
				def = k.v
			default:
				return nil, errors.New("unexpected keyword argument '" + k.name + "'")
			}
		}
		return r.getter(path, def, false)
	}
	name, rest := a.pos[0], args{a.pos[1:], a.kw}
	return func(x Value) (Value, error) {
		if !name.isStr() {
			return x, typeErrorf("filter name must be str, not %s", typeName(name))
		}
		f := filterByName(name.s)
		if f == nil {
			if leftOutFilter(name.s) {
				return x, typeErrorf("%w: filter '%s'", ErrUnsupported, name.s)
			}
			return x, typeErrorf("no filter named '%s'", name.s)
		}
		return f(r, x, rest)
	}, nil
}

func filterSelect(name string, attr, want bool) filterFunc {
	return func(r *run, v Value, a args) (Value, error) {
		if err := a.notAgain(name, "context", "value"); err != nil {
			return v, err
		}
		a, err := r.keep(a)
		if err != nil {
			return v, err
		}
		var pass func(Value) (bool, error)
		var it iter
		return r.lazy(func(r *run) (Value, bool, error) {
			if pass == nil {
				if !r.truth(v) {
					return Value{}, false, nil
				}
				var err error
				if pass, err = r.selector(name, attr, a); err != nil {
					return Value{}, false, err
				}
				if it, err = r.iterate(v); err != nil {
					return Value{}, false, err
				}
			}
			for {
				x, ok, err := it.next(r)
				if err != nil || !ok {
					return x, false, err
				}
				if err := r.step(); err != nil {
					return x, false, err
				}
				p, err := pass(x)
				if err != nil || p == want {
					return x, err == nil, err
				}
			}
		})
	}
}

func (r *run) selector(name string, attr bool, a args) (func(Value) (bool, error), error) {
	get := func(v Value) (Value, error) { return v, nil }
	if attr {
		if len(a.pos) == 0 {
			return nil, errors.New(name + " needs the name of an attribute")
		}
		var err error
		if get, err = r.getter(a.pos[0], Value{}, false); err != nil {
			return nil, err
		}
		a.pos = a.pos[1:]
	}
	if len(a.pos) == 0 {
		return func(v Value) (bool, error) {
			v, err := get(v)
			return r.truth(v), err
		}, nil
	}
	by, rest := a.pos[0], args{a.pos[1:], a.kw}
	return func(v Value) (bool, error) {
		v, err := get(v)
		if err != nil {
			return false, err
		}
		if !by.isStr() {
			return false, typeErrorf("test name must be str, not %s", typeName(by))
		}
		t := testByName(by.s)
		if t == nil {
			return false, typeErrorf("no test named '%s'", by.s)
		}
		return t(r, v, rest)
	}, nil
}

func filterGroupBy(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("groupby", "attribute!", "default", "case_sensitive")
	if err != nil {
		return v, err
	}
	def := b.or(1, NoneValue())
	fold := !b.has[2] || !r.truth(b.v[2])
	key, err := r.getter(b.v[0], def, fold)
	if err != nil {
		return v, err
	}
	plain, err := r.getter(b.v[0], def, false)
	if err != nil {
		return v, err
	}
	items, err := r.collect(v)
	if err != nil {
		return v, err
	}
	items, keys, err := r.sorted(items, key, false)
	if err != nil {
		return v, err
	}
	out := listBuilder{r: r}
	for i := 0; i < len(items); {
		j := i + 1
		for j < len(items) {
			eq, err := r.equal(keys[i], keys[j])
			if err != nil {
				return v, err
			}
			if !eq {
				break
			}
			j++
		}
		k, err := plain(items[i])
		if err != nil {
			return v, err
		}
		if err := r.pay(0, 2*listBytes+2*valueBytes); err != nil {
			return v, err
		}
		group := Value{kind: Tuple, ref: &seq{items: []Value{k, ListValue(items[i:j:j]...)}, group: true}}
		if err := out.add(group); err != nil {
			return v, err
		}
		i = j
	}
	return r.list(out.items)
}

func filterBatch(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("batch", "linecount!", "fill_with")
	if err != nil {
		return v, err
	}
	n, fill := b.v[0], b.or(1, NoneValue())
	var it iter
	begun, over := false, false
	var carried []Value // the element that follows an empty first line
	return r.lazy(func(r *run) (Value, bool, error) {
		if over {
			return Value{}, false, nil
		}
		if !begun {
			begun = true
			var err error
			if it, err = r.iterate(v); err != nil {
				return Value{}, false, err
			}
		}
		line := listBuilder{r, carried}
		carried = nil
		for {
			full, err := r.equal(IntValue(int64(len(line.items))), n)
			if err != nil {
				return Value{}, false, err
			}
			if full && len(line.items) > 0 {
				break
			}
			x, ok, err := it.next(r)
			if err != nil {
				return Value{}, false, err
			}
			if !ok {
				over = true
				break
			}
			if full { // a line count of 0 gives an empty line before the first element
				carried = []Value{x}
				n = IntValue(-1)
				return ListValue(), true, nil
			}
			if err := line.add(x); err != nil {
				return Value{}, false, err
			}
		}
		if len(line.items) == 0 {
			return Value{}, false, nil
		}
		if over && fill.kind != None {
			want, ok := n.small()
			if !ok {
				return Value{}, false, typeErrorf("batch: line count must be an int")
			}
			if err := r.room(want); err != nil {
				return Value{}, false, err
			}
			for int64(len(line.items)) < want {
				if err := line.add(fill); err != nil {
					return Value{}, false, err
				}
			}
		}
		x, err := r.list(line.items)
		return x, true, err
	})
}

func filterSlice(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("slice", "slices!", "fill_with")
	if err != nil {
		return v, err
	}
	fill := b.or(1, NoneValue())
	var items []Value
	var slices, at, offset int64
	begun := false
	return r.lazy(func(r *run) (Value, bool, error) {
		if !begun {
			begun = true
			var err error
			if items, err = r.collect(v); err != nil {
				return Value{}, false, err
			}
			n, ok := b.v[0].small()
			if !ok {
				return Value{}, false, typeErrorf("slice: slices must be an int")
			}
			if n == 0 {
				return Value{}, false, valueErrorf("integer division or modulo by zero")
			}
			slices = n
		}
		if at >= slices {
			return Value{}, false, nil
		}
		each, extra := int64(len(items))/slices, int64(len(items))%slices
		from := offset + at*each
		if at < extra {
			offset++
		}
		to := offset + (at+1)*each
		part := items[from:to:to]
		if fill.kind != None && at >= extra {
			if err := r.pay(len(part), times(len(part)+1, 2*valueBytes)); err != nil {
				return Value{}, false, err
			}
			part = append(part, fill)
		}
		at++
		x, err := r.list(part)
		return x, true, err
	})
}
