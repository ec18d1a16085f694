package chat

import (
	"slices"
	"strings"
)

// A function is a filter, a test, a method or a global function. The parameter v is the value to
// which a filter or a test is applied, or the object of a method. A test returns a bool.
type function struct {
	params []string
	call   func(r *run, v Value, b bound) (Value, error)
	// variadic replaces call and params if the number of arguments is not fixed.
	variadic func(r *run, v Value, a args) (Value, error)
	// If not nil, this function returns the same result as call without arguments, but faster.
	is func(v Value) bool
}

// fn returns a function with the given parameters. A name that ends with '!' marks a required
// parameter. A name that begins with '/' marks a positional-only parameter. A name that begins with
// '-' marks a parameter that is not supported.
func fn(call func(r *run, v Value, b bound) (Value, error), params ...string) *function {
	return &function{params: params, call: call}
}

// apply calls the function. The string what describes the function in errors.
func (f *function) apply(r *run, what string, v Value, a args) (Value, error) {
	if f.variadic != nil {
		return f.variadic(r, v, a)
	}
	base := len(r.stack)
	b, err := r.bind(what, f.params, a)
	if err == nil {
		v, err = f.call(r, v, b)
	}
	if len(a.kw) > 0 {
		r.drop(base)
	}
	return v, err
}

type keyword struct {
	name string
	v    Value
}

// args holds the arguments of a call. The slices are valid only during the call.
type args struct {
	pos []Value
	kw  []keyword
}

func (a args) keyword(name string) (Value, bool) {
	for i := range a.kw {
		if a.kw[i].name == name {
			return a.kw[i].v, true
		}
	}
	return Value{}, false
}

// bound holds the arguments of a call, indexed by parameter. It can be shorter than the list of
// parameters.
type bound []Value

// absent is the kind of a missing argument.
const absent Kind = 255

func (b bound) has(i int) bool { return i < len(b) && b[i].kind != absent }

// at returns argument i, or an undefined value if the argument is missing.
func (b bound) at(i int) Value { return b.or(i, Value{}) }

func (b bound) or(i int, def Value) Value {
	if b.has(i) {
		return b[i]
	}
	return def
}

// bind assigns arguments to parameters. If the call has keyword arguments, the result is stored on
// r.stack.
func (r *run) bind(what string, params []string, a args) (bound, error) {
	b := bound(a.pos)
	if len(b) > len(params) {
		return b, typeErrorf("%s takes at most %d arguments, not %d", what, len(params), len(b))
	}
	if len(a.kw) > 0 {
		base := len(r.stack)
		r.stack = append(r.stack, b...)
		for range params[len(b):] {
			r.stack = append(r.stack, Value{kind: absent})
		}
		b = bound(r.stack[base:])
	}
	for _, k := range a.kw {
		i := slices.IndexFunc(params, func(p string) bool { return strings.Trim(p, "-!") == k.name })
		if i < 0 {
			return b, typeErrorf("%s has no keyword argument '%s'", what, k.name)
		}
		if b.has(i) {
			return b, typeErrorf("%s got multiple values for argument '%s'", what, k.name)
		}
		b[i] = k.v
	}
	for i, p := range params {
		switch has := b.has(i); {
		case has && p[0] == '-':
			return b, unsupportedf("argument '%s' of %s", strings.Trim(p, "-/"), what)
		case !has && p[len(p)-1] == '!':
			return b, typeErrorf("%s: missing argument '%s'", what, strings.Trim(p, "/!"))
		}
	}
	return b, nil
}
