package chat

import "slices"

type (
	// A namespace is the only object that a template can change.
	namespace struct{ attrs Map }

	// A macro is a macro or the body of a generation block, with its enclosing variables.
	macro struct {
		body *macroBody
		env  *env
	}

	builtin struct {
		name string
		fn   func(r *run, a args) (Value, error)
	}

	// A method is a bound method that was not called yet.
	method struct {
		of   Value
		name string
		fn   methodFunc
	}

	// A rangeObject is Python's range.
	rangeObject struct{ start, stop, step int64 }

	// A view is the result of keys, values or items of a dict.
	view struct {
		of   *Map
		kind byte // 'k', 'v', 'i'
	}

	// An iterator is a generator that is a value. It can be exhausted: fn is then nil.
	iterator struct {
		fn func(r *run) (Value, bool, error)
	}
)

type methodFunc func(r *run, v Value, a args) (Value, error)

// An iter iterates over a value. It uses either items or obj.
type iter struct {
	items []Value
	pos   int
	obj   *iterator
}

func (it *iter) next(r *run) (Value, bool, error) {
	if it.obj != nil {
		return it.obj.next(r)
	}
	if it.pos >= len(it.items) {
		return Value{}, false, nil
	}
	it.pos++
	return it.items[it.pos-1], true, nil
}

func (s *iterator) next(r *run) (Value, bool, error) {
	if s.fn == nil {
		return Value{}, false, nil
	}
	if err := r.step(); err != nil {
		return Value{}, false, err
	}
	// A template can nest generators arbitrarily deep.
	if r.nested++; r.nested > maxGenerators {
		return Value{}, false, limitErrorf("generators nest deeper than %d", maxGenerators)
	}
	v, ok, err := s.fn(r)
	r.nested--
	if err != nil || !ok {
		// A generator that failed or ended yields nothing more.
		s.fn = nil
	}
	return v, ok, err
}

// maxGenerators is the maximum nesting of generators. Python's own limit is close to it.
const maxGenerators = 900

func generator(fn func(r *run) (Value, bool, error)) iter {
	return iter{obj: &iterator{fn: fn}}
}

// lazy returns a generator as a value.
func (r *run) lazy(fn func(r *run) (Value, bool, error)) (Value, error) {
	return objectOf(&iterator{fn: fn}), r.pay(0, 3*objectBytes)
}

// iterate returns an iterator over v, or Python's error if v is not iterable.
func (r *run) iterate(v Value) (iter, error) {
	switch v.kind {
	case List, Tuple:
		return iter{items: v.ref.(*seq).items}, nil
	case Dict:
		return iter{items: v.ref.(*Map).keys}, nil
	case String, Markup:
		s, i := v.s, 0
		return generator(func(*run) (Value, bool, error) {
			if i >= len(s) {
				return Value{}, false, nil
			}
			n := runeLen(s[i:])
			i += n
			return Value{kind: String, s: s[i-n : i]}, true, nil
		}), nil
	case Undefined:
		return iter{}, nil
	case Object:
		switch o := v.ref.(type) {
		case *iterator:
			return iter{obj: o}, nil
		case *rangeObject:
			at := *o
			return generator(func(*run) (Value, bool, error) {
				if at.len() == 0 {
					return Value{}, false, nil
				}
				x := at.start
				at.start += at.step
				return IntValue(x), true, nil
			}), nil
		case *view:
			items, err := o.items(r)
			return iter{items: items}, err
		case *loopObject:
			return generator(func(r *run) (Value, bool, error) {
				x, ok, err := o.next(r)
				return tupleOf(x, v), ok, err
			}), nil
		}
	}
	return iter{}, typeErrorf("'%s' object is not iterable", typeName(v))
}

// collect returns the remaining elements of v. The slice can belong to v: do not change it.
func (r *run) collect(v Value) ([]Value, error) {
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	return r.rest(&it)
}

func (r *run) rest(it *iter) ([]Value, error) {
	if it.obj == nil {
		out := it.items[it.pos:]
		it.pos = len(it.items)
		return out, r.pay(len(out), 0)
	}
	out := listBuilder{r: r}
	for {
		x, ok, err := it.next(r)
		if err != nil || !ok {
			return out.items, err
		}
		if err := out.add(x); err != nil {
			return nil, err
		}
	}
}

func (v *view) items(r *run) ([]Value, error) {
	switch v.kind {
	case 'k':
		return v.of.keys, nil
	case 'v':
		return v.of.vals, nil
	}
	if err := r.pay(v.of.Len(), times(v.of.Len(), 4*valueBytes)); err != nil {
		return nil, err
	}
	out := make([]Value, v.of.Len())
	pairs := make([]Value, 2*len(out))
	seqs := make([]seq, len(out))
	for i := range out {
		pair := pairs[2*i : 2*i+2 : 2*i+2]
		pair[0], pair[1] = v.of.keys[i], v.of.vals[i]
		seqs[i].items = pair
		out[i] = Value{kind: Tuple, ref: &seqs[i]}
	}
	return out, nil
}

func (o *rangeObject) len() int64 {
	switch {
	case o.step > 0 && o.start < o.stop:
		return int64((uint64(o.stop)-uint64(o.start)-1)/uint64(o.step)) + 1
	case o.step < 0 && o.start > o.stop:
		return int64((uint64(o.start)-uint64(o.stop)-1)/(-uint64(o.step))) + 1
	}
	return 0
}

func (o *rangeObject) at(i int64) Value { return IntValue(o.start + i*o.step) }

// A loopObject is the variable loop. It reads one element ahead only if the template needs it.
type loopObject struct {
	it iter
	of Value

	index           int
	length          int
	known           bool
	after           Value
	peeked, some    bool
	current, before Value
}

func (l *loopObject) next(r *run) (Value, bool, error) {
	var x Value
	var ok bool
	if l.peeked && l.some {
		x, ok = l.after, true
		l.peeked = false
	} else {
		var err error
		l.peeked = false
		if x, ok, err = l.it.next(r); err != nil {
			return x, ok, err
		}
	}
	if ok {
		l.index++
		l.before, l.current = l.current, x
	}
	return x, ok, nil
}

func (l *loopObject) peek(r *run) (bool, error) {
	if l.peeked && l.some {
		return true, nil
	}
	var err error
	if l.after, l.some, err = l.it.next(r); err != nil {
		return false, err
	}
	l.peeked = true
	return l.some, nil
}

func (l *loopObject) len(r *run) (int, error) {
	if l.known {
		return l.length, nil
	}
	if n, err := r.length(l.of); err == nil {
		l.length, l.known = n, true
		return n, nil
	}
	rest, err := r.rest(&l.it)
	if err != nil {
		return 0, err
	}
	l.it = iter{items: rest}
	l.length = len(rest) + l.index + 1
	if l.peeked && l.some {
		l.length++
	}
	l.known = true
	return l.length, nil
}

func (l *loopObject) attr(r *run, name string) (Value, bool, error) {
	length := func(f func(n int) int) (Value, bool, error) {
		n, err := l.len(r)
		return IntValue(int64(f(n))), true, err
	}
	switch name {
	case "index0":
		return IntValue(int64(l.index)), true, nil
	case "index":
		return IntValue(int64(l.index) + 1), true, nil
	case "first":
		return BoolValue(l.index == 0), true, nil
	case "last":
		more, err := l.peek(r)
		return BoolValue(!more), true, err
	case "length":
		return length(func(n int) int { return n })
	case "revindex0":
		return length(func(n int) int { return n - l.index - 1 })
	case "revindex":
		return length(func(n int) int { return n - l.index })
	case "previtem":
		if l.index == 0 {
			return undefinedMessage("there is no previous item"), true, nil
		}
		return l.before, true, nil
	case "nextitem":
		more, err := l.peek(r)
		if err != nil || more {
			return l.after, true, err
		}
		return undefinedMessage("there is no next item"), true, nil
	}
	return Value{}, false, nil
}

func (r *run) callMacro(m *macro, a args) (Value, error) {
	b := m.body
	if err := r.enterCall(); err != nil {
		return Value{}, err
	}
	// Each parameter is searched among the keywords, and each variable is cleared.
	if err := r.pay(b.slots>>3+times(len(b.params), len(a.kw))>>2, 0); err != nil {
		return Value{}, err
	}
	outer, line := r.env, r.line
	e := r.newEnv(b.slots, m.env)
	err := b.bind(e, a)
	if err == nil {
		r.env = e
		var v Value
		start := len(r.out)
		if err = b.defaults(r); err == nil {
			_, err = r.exec(b.body)
		}
		if err == nil {
			if err = r.pay(0, len(r.out)-start); err == nil {
				v = strOf(string(r.out[start:]))
			}
		}
		r.out = r.out[:start]
		r.env = outer
		r.depth--
		if err == nil {
			r.line = line
		}
		r.dropEnv(e)
		return v, err
	}
	r.depth--
	return Value{}, err
}

// bind stores the arguments of a call in the slots of a macro. Missing arguments are the zero
// Value, and defaults fills them.
func (b *macroBody) bind(e *env, a args) error {
	if len(a.pos) > len(b.params) {
		return typeErrorf("macro '%s' takes not more than %d argument(s)", b.name, len(b.params))
	}
	for i, v := range a.pos {
		e.slots[b.params[i].place.slot] = v
	}
	rest := b.params[len(a.pos):]
	for i := range rest {
		e.slots[rest[i].place.slot] = Value{}
	}
	for _, k := range a.kw {
		i := slices.IndexFunc(rest, func(p param) bool { return p.name == k.name })
		if i < 0 {
			return typeErrorf("macro '%s' takes no keyword argument '%s'", b.name, k.name)
		}
		if k.v.kind == Undefined && k.v.s == "" && k.v.n == 0 {
			k.v.n = 1 // mark an undefined argument as given
		}
		e.slots[rest[i].place.slot] = k.v
	}
	return nil
}

func (b *macroBody) defaults(r *run) error {
	r.enter(b.frame.loads)
	for i := range b.params {
		p := &b.params[i]
		if v := r.get(p.place); v.kind != Undefined || v.s != "" || v.n != 0 {
			continue
		}
		v := undefinedMessage("parameter '" + p.name + "' was not provided")
		if p.def != nil {
			var err error
			if v, err = p.def.eval(r); err != nil {
				return err
			}
		}
		r.set(p.place, v)
	}
	return nil
}
