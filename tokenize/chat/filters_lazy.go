package chat

// The filters that return a generator and take the name of a filter or a test: map, select, reject,
// selectattr and rejectattr.

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

// rejectKeywords refuses keywords for parameters that the filter itself sets.
func (a args) rejectKeywords(what string, names ...string) error {
	for _, k := range a.kw {
		if slices.Contains(names, k.name) {
			return typeErrorf("%s got multiple values for argument '%s'", what, k.name)
		}
	}
	return nil
}

func filterMap(r *run, v Value, a args) (Value, error) {
	if err := a.rejectKeywords("map", "context", "value"); err != nil {
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
		switch {
		case f != nil:
			return f(r, x, rest)
		case slices.Contains(unsupportedFilters, name.s):
			return x, unsupportedf("filter '%s'", name.s)
		}
		return x, typeErrorf("no filter named '%s'", name.s)
	}, nil
}

func filterSelect(name string, attr, want bool) filterFunc {
	return func(r *run, v Value, a args) (Value, error) {
		if err := a.rejectKeywords(name, "context", "value"); err != nil {
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
		switch {
		case t != nil:
			return t(r, v, rest)
		case slices.Contains(unsupportedTests, by.s):
			return false, unsupportedf("test '%s'", by.s)
		}
		return false, typeErrorf("no test named '%s'", by.s)
	}, nil
}
