package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

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

func (e *constExpr) eval(*run) (Value, error) { return e.v, nil }

func (e *nameExpr) eval(r *run) (Value, error) {
	v := r.get(e.place)
	if v.kind == Undefined && v.s == "" && v.n == 0 {
		return undefinedName(e.name), nil
	}
	return v, nil
}

func (r *run) evalAll(list []expr) ([]Value, error) {
	if err := r.pay(len(list), listBytes+valueBytes*len(list)); err != nil {
		return nil, err
	}
	out := make([]Value, len(list))
	for i, e := range list {
		v, err := e.eval(r)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

func (e *tupleExpr) eval(r *run) (Value, error) {
	items, err := r.evalAll(e.items)
	return Value{kind: Tuple, ref: &seq{items: items}}, err
}

func (e *listExpr) eval(r *run) (Value, error) {
	items, err := r.evalAll(e.items)
	return Value{kind: List, ref: &seq{items: items}}, err
}

func (e *dictExpr) eval(r *run) (Value, error) {
	m := NewMap(len(e.keys))
	for i := range e.keys {
		k, err := e.keys[i].eval(r)
		if err != nil {
			return Value{}, err
		}
		v, err := e.vals[i].eval(r)
		if err != nil {
			return Value{}, err
		}
		if err := r.put(m, k, v); err != nil {
			return Value{}, err
		}
	}
	return MapValue(m), nil
}

func (e *andExpr) eval(r *run) (Value, error) {
	a, err := e.a.eval(r)
	if err != nil || !r.truth(a) {
		return a, err
	}
	return e.b.eval(r)
}

func (e *orExpr) eval(r *run) (Value, error) {
	a, err := e.a.eval(r)
	if err != nil || r.truth(a) {
		return a, err
	}
	return e.b.eval(r)
}

func (e *notExpr) eval(r *run) (Value, error) {
	v, err := e.e.eval(r)
	return BoolValue(!r.truth(v)), err
}

func (e *negExpr) eval(r *run) (Value, error) {
	v, err := e.e.eval(r)
	if err != nil {
		return v, err
	}
	return r.negate(v)
}

func (e *posExpr) eval(r *run) (Value, error) {
	v, err := e.e.eval(r)
	if err != nil {
		return v, err
	}
	return r.plus(v)
}

func (e *binaryExpr) eval(r *run) (Value, error) {
	a, err := e.a.eval(r)
	if err != nil {
		return a, err
	}
	b, err := e.b.eval(r)
	if err != nil {
		return b, err
	}
	if err := r.step(); err != nil {
		return b, err
	}
	r.line = e.line
	return r.binary(e.op, a, b)
}

func (e *sumExpr) eval(r *run) (Value, error) {
	base := len(r.stack)
	v, plain, err := e.add(r)
	if plain {
		v = strOf(concatenated(r.stack[base:]))
	}
	r.drop(base)
	return v, err
}

func (e *sumExpr) write(r *run) error {
	base := len(r.stack)
	v, plain, err := e.add(r)
	if plain {
		for _, part := range r.stack[base:] {
			r.out = append(r.out, part.s...)
		}
	}
	r.drop(base)
	switch {
	case err != nil:
		return err
	case plain:
		return r.checkOutput()
	}
	return r.write(v)
}

// add adds the terms. If all are of kind String, it leaves them on the stack in order and returns
// plain = true. So a chain of texts is copied once, not once per term.
func (e *sumExpr) add(r *run) (v Value, plain bool, err error) {
	base := len(r.stack)
	if v, err = e.terms[0].eval(r); err != nil {
		return v, false, err
	}
	plain = v.kind == String
	size := len(v.s)
	r.stack = append(r.stack, v)
	for i, t := range e.terms[1:] {
		b, err := t.eval(r)
		if err == nil {
			err = r.step()
		}
		if err != nil {
			return b, false, err
		}
		r.line = e.lines[i]
		if plain && b.kind == String {
			size += len(b.s)
			r.stack = append(r.stack, b)
			err = r.pay(0, size) // as for the joined text
		} else {
			if plain && i > 0 {
				v = strOf(concatenated(r.stack[base:]))
			}
			plain = false
			v, err = r.binary(opAdd, v, b)
		}
		if err != nil {
			return v, false, err
		}
	}
	return v, plain, nil
}

// concatenated returns the parts as one text. It does not allocate if only one part is not empty.
func concatenated(parts []Value) string {
	size, last := 0, ""
	for i := range parts {
		if s := parts[i].s; s != "" {
			size, last = size+len(s), s
		}
	}
	if size == len(last) {
		return last
	}
	var b strings.Builder
	b.Grow(size)
	for i := range parts {
		b.WriteString(parts[i].s)
	}
	return b.String()
}

func (r *run) drop(base int) {
	clear(r.stack[base:])
	r.stack = r.stack[:base]
}

func (e *concatExpr) eval(r *run) (Value, error) {
	// Jinja evaluates all parts before it converts any to text. The text of a value cannot change
	// in between, so one pass is enough.
	start := len(r.out)
	defer func() { r.out = r.out[:start] }()
	vals, err := r.evalAll(e.parts)
	if err != nil {
		return Value{}, err
	}
	for _, v := range vals {
		if v.isStr() {
			if err := r.checkSize(r.out, len(v.s)); err != nil {
				return Value{}, err
			}
		}
		out, err := r.appendStr(r.out, v)
		if err != nil {
			return Value{}, err
		}
		r.out = out
	}
	if err := r.pay(0, len(r.out)-start); err != nil {
		return Value{}, err
	}
	return strOf(string(r.out[start:])), nil
}

func (e *compareExpr) eval(r *run) (Value, error) {
	a, err := e.first.eval(r)
	if err != nil {
		return a, err
	}
	for i, op := range e.ops {
		b, err := e.rest[i].eval(r)
		if err != nil {
			return b, err
		}
		if err := r.step(); err != nil {
			return b, err
		}
		ok, err := r.compare(op, a, b)
		if err != nil {
			return b, err
		}
		if !ok {
			return BoolValue(false), nil
		}
		a = b
	}
	return BoolValue(true), nil
}

func (e *condExpr) eval(r *run) (Value, error) {
	t, err := e.test.eval(r)
	switch {
	case err != nil:
		return t, err
	case r.truth(t):
		return e.then.eval(r)
	case e.els != nil:
		return e.els.eval(r)
	}
	return undefinedMessage("the inline if-expression evaluated to false and no else section was defined"), nil
}

func (e *attrExpr) eval(r *run) (Value, error) {
	v, err := e.of.eval(r)
	if err != nil {
		return v, err
	}
	if e.cost > 0 {
		if err := r.pay(e.cost, 0); err != nil {
			return v, err
		}
	}
	if v.kind == Dict && e.element {
		if x, ok := v.ref.(*Map).Get(e.name); ok {
			return x, nil
		}
		return e.missing, nil
	}
	return r.attr(v, e.name)
}

// newAttr looks up the methods of the name once for all renders.
func newAttr(of expr, name string) *attrExpr {
	e := &attrExpr{of: of, name: name, cost: linearKeys * (len(name) >> 8), onStr: stringMethod(name), missing: missingAttr(Value{kind: Dict}, name)}
	e.onDict = dictMethod(name)
	e.element = e.onDict == nil && !isObjectAttr(name) && !mutates(Value{kind: Dict}, name) &&
		!slices.Contains(unsupportedDictMethods, name)
	return e
}

// quickMethod returns the allowed method of a plain str or dict, or nil.
func (e *attrExpr) quickMethod(v Value) methodFunc {
	switch v.kind {
	case String, Markup:
		if v.ref == nil {
			return e.onStr
		}
	case Dict:
		return e.onDict
	}
	return nil
}

func (e *itemExpr) eval(r *run) (Value, error) {
	v, err := e.of.eval(r)
	if err != nil {
		return v, err
	}
	k, err := e.key.eval(r)
	if err != nil {
		return k, err
	}
	return r.item(v, k)
}

func (e *sliceExpr) eval(r *run) (Value, error) {
	v, err := e.of.eval(r)
	if err != nil {
		return v, err
	}
	var parts [3]Value
	for i, x := range [...]expr{e.start, e.stop, e.step} {
		parts[i] = NoneValue()
		if x == nil {
			continue
		}
		if parts[i], err = x.eval(r); err != nil {
			return v, err
		}
	}
	out, err := r.slice(v, parts[0], parts[1], parts[2])
	if errors.Is(err, errNoSlice) && e.folded {
		// Jinja evaluates constants at compile time in another way. It then treats this error as a
		// missing element, depending on the context.
		return v, fmt.Errorf("%w: a slice of literals: %w", ErrUnsupported, err)
	}
	return out, err
}

func (e *callExpr) eval(r *run) (Value, error) {
	var fn, self Value
	var direct methodFunc
	if at, ok := e.fn.(*attrExpr); ok {
		// A method that is called immediately need not become a value.
		v, err := at.of.eval(r)
		if err != nil {
			return v, err
		}
		if direct = at.quickMethod(v); direct != nil {
			self = v
		} else if fn, err = r.attr(v, at.name); err != nil {
			return v, err
		}
	} else {
		v, err := e.fn.eval(r)
		if err != nil {
			return v, err
		}
		fn = v
	}
	pos, kws := len(r.stack), len(r.kws)
	a, err := r.arguments(e)
	var v Value
	if err == nil {
		err = r.step()
	}
	if err == nil {
		r.line = e.line
		if direct != nil {
			v, err = direct(r, self, a)
		} else {
			v, err = r.callValue(fn, a)
		}
	}
	clear(r.stack[pos:])
	clear(r.kws[kws:])
	r.stack, r.kws = r.stack[:pos], r.kws[:kws]
	return v, err
}

// arguments evaluates the arguments of a call onto the stacks of the run.
func (r *run) arguments(e *callExpr) (args, error) {
	if e == nil {
		return args{}, nil
	}
	pos, kws := len(r.stack), len(r.kws)
	for _, x := range e.args {
		v, err := x.eval(r)
		if err != nil {
			return args{}, err
		}
		r.stack = append(r.stack, v)
	}
	for _, k := range e.kwargs {
		v, err := k.e.eval(r)
		if err != nil {
			return args{}, err
		}
		r.kws = append(r.kws, keyword{k.name, v})
	}
	a := args{pos: r.stack[pos:len(r.stack):len(r.stack)]}
	if len(r.kws) > kws {
		a.kw = r.kws[kws:len(r.kws):len(r.kws)]
	}
	return a, nil
}

func (r *run) callValue(fn Value, a args) (Value, error) {
	switch f := fn.ref.(type) {
	case *builtin:
		return f.fn(r, a)
	case *method:
		return f.fn(r, f.of, a)
	case *macro:
		return r.callMacro(f, a)
	}
	if fn.kind == Undefined {
		return Value{}, undefinedError(fn)
	}
	return Value{}, typeErrorf("'%s' object is not callable", typeName(fn))
}

func (e *filterExpr) eval(r *run) (Value, error) {
	v, err := e.of.eval(r)
	if err != nil {
		return v, err
	}
	return e.apply(r, v)
}

func (e *filterExpr) apply(r *run, v Value) (Value, error) {
	if err := r.step(); err != nil {
		return v, err
	}
	pos, kws := len(r.stack), len(r.kws)
	a, err := r.arguments(e.call)
	if err == nil {
		r.line = e.line
		if e.fn == nil {
			err = typeErrorf("no filter named '%s'", e.name)
		} else {
			v, err = e.fn(r, v, a)
		}
	}
	clear(r.stack[pos:])
	clear(r.kws[kws:])
	r.stack, r.kws = r.stack[:pos], r.kws[:kws]
	return v, err
}

func (e *testExpr) eval(r *run) (Value, error) {
	v, err := e.of.eval(r)
	if err != nil {
		return v, err
	}
	if err := r.step(); err != nil {
		return v, err
	}
	pos, kws := len(r.stack), len(r.kws)
	a, err := r.arguments(e.call)
	ok := false
	if err == nil {
		if e.fn == nil {
			err = typeErrorf("no test named '%s'", e.name)
		} else {
			ok, err = e.fn(r, v, a)
		}
	}
	clear(r.stack[pos:])
	clear(r.kws[kws:])
	r.stack, r.kws = r.stack[:pos], r.kws[:kws]
	return BoolValue(ok), err
}

// bound holds the arguments of a call by parameter index.
type bound struct {
	v   [4]Value
	has [4]bool
}

// flag returns argument i as a bool. As in Python, it must be an int.
func (b *bound) flag(i int) (bool, error) {
	if !b.has[i] {
		return false, nil
	}
	n, ok := b.v[i].small()
	switch {
	case !b.v[i].isInt():
		return false, typeErrorf("'%s' object cannot be interpreted as an integer", typeName(b.v[i]))
	case !ok || n != int64(int32(n)):
		return false, valueErrorf("int too large to convert to C int")
	}
	return n != 0, nil
}

func (b *bound) or(i int, def Value) Value {
	if b.has[i] {
		return b.v[i]
	}
	return def
}

// bind assigns arguments to the parameters in names. A name that ends in '!' is required.
func (a args) bind(what string, names ...string) (bound, error) {
	var b bound
	if len(a.pos) > len(names) {
		return b, typeErrorf("%s takes at most %d arguments, not %d", what, len(names), len(a.pos))
	}
	for i, v := range a.pos {
		b.v[i], b.has[i] = v, true
	}
next:
	for _, k := range a.kw {
		for i, n := range names {
			if strings.TrimSuffix(n, "!") == k.name {
				if b.has[i] {
					return b, typeErrorf("%s got multiple values for argument '%s'", what, k.name)
				}
				b.v[i], b.has[i] = k.v, true
				continue next
			}
		}
		return b, typeErrorf("%s has no keyword argument '%s'", what, k.name)
	}
	for i, n := range names {
		if strings.HasSuffix(n, "!") && !b.has[i] {
			return b, typeErrorf("%s: missing argument '%s'", what, strings.TrimSuffix(n, "!"))
		}
	}
	return b, nil
}

// only checks the number of arguments of a function that takes no keywords.
func (a args) only(what string, least, most int) error {
	if len(a.kw) > 0 {
		return typeErrorf("%s takes no keyword arguments", what)
	}
	if len(a.pos) < least || len(a.pos) > most {
		return typeErrorf("%s takes %d to %d arguments, not %d", what, least, most, len(a.pos))
	}
	return nil
}
