package chat

// This file implements the filters that take the name of a filter or a test: map, select, reject,
// selectattr and rejectattr.

import (
	"errors"
	"slices"
)

// rejectKeywords refuses keyword arguments for parameters that the filter itself sets.
func (a args) rejectKeywords(what string) error {
	for _, k := range a.kw {
		if k.name == "context" || k.name == "value" {
			return typeErrorf("%s got multiple values for argument '%s'", what, k.name)
		}
	}
	return nil
}

// failed returns a generator that returns err when it is read.
func failed(err error) Value { return objectOf(&generator{iter: iter{err: err}}) }

func filterMap(r *run, v Value, a args) (Value, error) {
	if err := a.rejectKeywords("map"); err != nil {
		return v, err
	}
	if !truth(v) {
		return failed(nil), nil
	}
	get, err := r.mapper(a)
	if err != nil {
		return failed(err), nil
	}
	return r.generate(v, func(x Value) (Value, bool, error) {
		x, err := get(x)
		return x, true, err
	})
}

// mapper returns the function that the filter map applies: a filter with a given name, or a getter
// for an attribute.
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
		return r.getter(path, def)
	}
	f, name, err := named("filter", a.pos[0], unsupportedFilters, filterByName)
	rest := args{a.pos[1:], a.kw}
	return func(x Value) (Value, error) {
		if err != nil {
			return x, err
		}
		return f.apply(r, name, x, rest)
	}, nil
}

// named returns the filter or the test with the given name. The parameter kind is "filter" or
// "test".
func named(kind string, name Value, unsupported []string, byName func(string) *function) (*function, string, error) {
	if !name.isStr() {
		return nil, "", typeErrorf("%s name must be str, not %s", kind, typeName(name))
	}
	f := byName(name.s)
	switch {
	case f != nil:
		return f, name.s, nil
	case slices.Contains(unsupported, name.s):
		return nil, "", unsupportedf("%s '%s'", kind, name.s)
	}
	return nil, "", typeErrorf("no %s named '%s'", kind, name.s)
}

// filterSelect implements select, reject, selectattr and rejectattr. The filter keeps an element if
// the result of a test equals the parameter want. If attr is true, the filter tests an attribute of
// each element instead of the element itself.
func filterSelect(name string, attr, want bool) func(r *run, v Value, a args) (Value, error) {
	return func(r *run, v Value, a args) (Value, error) {
		if err := a.rejectKeywords(name); err != nil {
			return v, err
		}
		if !truth(v) {
			return failed(nil), nil
		}
		pass, err := r.selector(name, attr, a)
		if err != nil {
			return failed(err), nil
		}
		return r.generate(v, func(x Value) (Value, bool, error) {
			v, err := pass(x)
			return x, truth(v) == want, err
		})
	}
}

func (r *run) selector(name string, attr bool, a args) (getterFunc, error) {
	get := func(v Value) (Value, error) { return v, nil }
	if attr {
		if len(a.pos) == 0 {
			return nil, errors.New(name + " needs the name of an attribute")
		}
		var err error
		if get, err = r.getter(a.pos[0], Value{}); err != nil {
			return nil, err
		}
		a.pos = a.pos[1:]
	}
	if len(a.pos) == 0 {
		return get, nil
	}
	test, by, err := named("test", a.pos[0], unsupportedTests, testByName)
	rest := args{a.pos[1:], a.kw}
	return func(v Value) (Value, error) {
		v, failure := get(v)
		if failure == nil {
			failure = err
		}
		if failure != nil {
			return v, failure
		}
		return test.apply(r, by, v, rest)
	}, nil
}
