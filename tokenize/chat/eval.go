package chat

import (
	"slices"
	"strings"
)

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

func (e *seqExpr) eval(r *run) (Value, error) {
	items, err := r.evalAll(e.items)
	return Value{kind: e.kind, ref: &seq{items: items}}, err
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

func (e *boolExpr) eval(r *run) (Value, error) {
	a, err := e.a.eval(r)
	if err != nil || truth(a) == e.or {
		return a, err
	}
	return e.b.eval(r)
}

func (e *notExpr) eval(r *run) (Value, error) {
	v, err := e.e.eval(r)
	return BoolValue(!truth(v)), err
}

func (e *signExpr) eval(r *run) (Value, error) {
	v, err := e.e.eval(r)
	if err != nil {
		return v, err
	}
	return signed(e.op, v)
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

func (e *compareExpr) eval(r *run) (Value, error) {
	a, err := e.values[0].eval(r)
	if err != nil {
		return a, err
	}
	for i, op := range e.ops {
		b, err := e.values[i+1].eval(r)
		if err == nil {
			err = r.step()
		}
		if err != nil {
			return b, err
		}
		r.line = e.lines[i]
		if ok, err := r.compare(op, a, b); !ok || err != nil {
			return BoolValue(false), err
		}
		a = b
	}
	return BoolValue(true), nil
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

// add adds the terms. If all terms are of kind String, add leaves them on the stack, in order, and
// returns true for plain. The caller can then copy all strings once, instead of once per term.
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
			err = r.pay(0, size) // charge as much as for joining the strings
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

// concatenated returns the parts as one string. It allocates only if several parts are not empty.
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
	// Like Jinja, evaluate all parts before converting any part to text.
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

func (e *condExpr) eval(r *run) (Value, error) {
	t, err := e.test.eval(r)
	switch {
	case err != nil:
		return t, err
	case truth(t):
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

// newAttr looks up the methods with the given name once, for all renders.
func newAttr(of expr, name string) *attrExpr {
	dict := Value{kind: Dict}
	return &attrExpr{
		of: of, name: name, cost: linearKeys * (len(name) >> 8),
		onStr: stringMethods[name], onDict: dictMethods[name], missing: missingAttr(dict, name),
		element: dictMethods[name] == nil && !mutates(dict, name) && !slices.Contains(unsupportedDictMethods, name),
	}
}

// quickMethod returns the supported method of a plain str or dict, or nil.
func (e *attrExpr) quickMethod(v Value) *function {
	switch {
	case v.kind == String && v.ref == nil:
		return e.onStr
	case v.kind == Dict:
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
	var ends [2]Value
	for i, x := range [...]expr{e.start, e.stop} {
		ends[i] = NoneValue()
		if x == nil {
			continue
		}
		if ends[i], err = x.eval(r); err != nil {
			return v, err
		}
	}
	return r.slice(v, ends[0], ends[1], e.reverse)
}

func (e *callExpr) eval(r *run) (Value, error) {
	var fn, self Value
	var direct *function
	if at, ok := e.fn.(*attrExpr); ok {
		// If possible, call the method without creating a value for it.
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
			v, err = direct.apply(r, e.fn.(*attrExpr).name, self, a)
		} else {
			v, err = r.callValue(fn, a)
		}
	}
	r.dropArguments(pos, kws)
	return v, err
}

// arguments evaluates the arguments of a call and pushes them onto the stacks of the run.
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

func (r *run) dropArguments(pos, kws int) {
	r.drop(pos)
	clear(r.kws[kws:])
	r.kws = r.kws[:kws]
}

func (r *run) callValue(fn Value, a args) (Value, error) {
	switch f := fn.ref.(type) {
	case *builtin:
		return f.apply(r, f.name, NoneValue(), a)
	case *method:
		return f.apply(r, f.name, f.of, a)
	case *macro:
		return r.callMacro(f, a)
	}
	if fn.kind == Undefined {
		return Value{}, undefinedError(fn)
	}
	return Value{}, typeErrorf("'%s' object is not callable", typeName(fn))
}

func (e *applyExpr) eval(r *run) (Value, error) {
	v, err := e.of.eval(r)
	if err != nil {
		return v, err
	}
	return e.apply(r, v)
}

func (e *applyExpr) apply(r *run, v Value) (Value, error) {
	if err := r.step(); err != nil {
		return v, err
	}
	if e.call == nil && e.fn != nil && e.fn.is != nil {
		return BoolValue(e.fn.is(v)), nil
	}
	pos, kws := len(r.stack), len(r.kws)
	a, err := r.arguments(e.call)
	if err == nil {
		r.line = e.line
		if e.fn == nil {
			err = typeErrorf("no %s named '%s'", e.kind, e.name)
		} else {
			v, err = e.fn.apply(r, e.name, v, a)
		}
	}
	r.dropArguments(pos, kws)
	return v, err
}
