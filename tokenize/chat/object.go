package chat

import (
	"slices"
	"unicode/utf8"
)

type (
	// A namespace is the only object that a template can change.
	namespace struct{ attrs Map }

	// A macro is a template's macro or the body of a generation block, together with the enclosing
	// variables.
	macro struct {
		body *macroBody
		env  *env
	}

	// A builtin is a global function.
	builtin struct {
		name string
		*function
	}

	// A method is the equivalent of Python's bound method.
	method struct {
		of   Value
		name string
		*function
	}

	// A rangeObject is the equivalent of Python's range.
	rangeObject struct{ start, stop, step int64 }

	// A view is the result of the dict method keys, values or items.
	view struct {
		of   *Map
		kind byte // 'k' for keys, 'v' for values, 'i' for items
	}

	// A generator is the result of a filter that Python evaluates only when the result is read. It
	// can be read only once. This package computes the elements immediately. The result is the
	// same, because the elements depend only on values that cannot change. To ensure this, generate
	// refuses a generator as an element. An error is reported only when the element that caused it
	// is read.
	generator struct {
		iter
		begun bool // it is being read or has been read, possibly not to the end
	}
)

// An iter holds the elements of an iteration, and the error, if any, that ends the iteration.
type iter struct {
	items []Value
	err   error
}

// generate calls the function each for every element of v and returns a generator of the results.
// The function also reports whether the element has a result.
func (r *run) generate(v Value, each func(x Value) (Value, bool, error)) (Value, error) {
	it, err := r.iterate(v)
	out := listBuilder{r: r}
	for i := 0; err == nil && i < len(it.items); i++ {
		var x Value
		var ok bool
		if _, is := it.items[i].ref.(*generator); is {
			err = unsupportedf("a filter on the elements of a list that contains a generator")
		} else if x, ok, err = each(it.items[i]); err == nil && ok {
			err = out.add(x)
		} else if err == nil {
			err = r.step()
		}
	}
	if err == nil {
		err = it.err
	}
	return objectOf(&generator{iter: iter{out.items, err}}), r.pay(0, objectBytes)
}

// iterate returns an iterator over v, or Python's error if v is not iterable.
func (r *run) iterate(v Value) (iter, error) {
	switch v.kind {
	case List, Tuple:
		return iter{items: v.ref.(*seq).items}, nil
	case Dict:
		return iter{items: v.ref.(*Map).keys}, nil
	case String, Markup:
		n := utf8.RuneCountInString(v.s)
		if err := r.pay(n, times(n, valueBytes)); err != nil {
			return iter{}, err
		}
		chars := make([]Value, 0, n)
		for s := v.s; s != ""; s = s[runeLen(s):] {
			chars = append(chars, strOf(s[:runeLen(s)]))
		}
		return iter{items: chars}, nil
	case Undefined:
		return iter{}, nil
	}
	switch o := v.ref.(type) {
	case *generator:
		if o.begun {
			return iter{}, unsupportedf("a second use of a generator")
		}
		it := o.iter
		o.iter, o.begun = iter{}, true
		return it, nil
	case *rangeObject:
		n := int(o.len())
		if err := r.pay(n, times(n, valueBytes)); err != nil {
			return iter{}, err
		}
		items := make([]Value, n)
		for i := range items {
			items[i] = o.at(int64(i))
		}
		return iter{items: items}, nil
	case *view:
		items, err := o.items(r)
		return iter{items: items}, err
	case *loopObject:
		return iter{}, unsupportedf("a loop over the variable 'loop'")
	}
	return iter{}, typeErrorf("'%s' object is not iterable", typeName(v))
}

// collect returns all elements of v. The slice can belong to v, so the caller must not change it.
func (r *run) collect(v Value) ([]Value, error) {
	it, err := r.iterate(v)
	if err != nil {
		return nil, err
	}
	if g, ok := v.ref.(*generator); ok {
		g.begun = false // collect reads the generator to its end
	}
	if it.err != nil {
		return nil, it.err
	}
	return it.items, r.pay(len(it.items), 0)
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

// A loopSource yields the elements that pass the test of a loop.
type loopSource struct {
	iter
	test *forStmt // nil if the loop has no test
	env  *env     // the variables for the test, even if other code advances the loop
}

func (l *loopSource) next(r *run) (Value, bool, error) {
	for len(l.items) > 0 {
		x := l.items[0]
		l.items = l.items[1:]
		if l.test == nil {
			return x, true, nil
		}
		env := r.env
		r.env = l.env
		pass, err := l.test.passes(r, x)
		r.env = env
		if pass || err != nil {
			return x, pass, err
		}
	}
	return Value{}, false, l.err
}

// A loopObject is the value of the variable loop. It reads one element ahead only if the template
// needs that element.
type loopObject struct {
	loopSource
	index           int
	after           Value
	peeked, more    bool
	current, before Value
}

func (l *loopObject) next(r *run) (Value, bool, error) {
	if _, err := l.peek(r); err != nil {
		return Value{}, false, err
	}
	l.peeked = false
	if l.more {
		l.index++
		l.before, l.current = l.current, l.after
	}
	return l.after, l.more, nil
}

func (l *loopObject) peek(r *run) (bool, error) {
	if !l.peeked {
		var err error
		if l.after, l.more, err = l.loopSource.next(r); err != nil {
			return false, err
		}
		l.peeked = true
	}
	return l.more, nil
}

func (l *loopObject) len(r *run) (int, error) {
	if l.test != nil { // this reads all remaining elements
		rest := listBuilder{r: r}
		for {
			x, ok, err := l.loopSource.next(r)
			if err == nil && ok {
				err = rest.add(x)
			}
			if err != nil {
				return 0, err
			}
			if !ok {
				break
			}
		}
		l.items, l.test = rest.items, nil
	}
	n := l.index + 1 + len(l.items)
	if l.peeked && l.more {
		n++
	}
	return n, l.err
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
	// Pay for searching the keywords for each parameter, and for clearing each variable.
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

// bind stores the arguments of a call in the slots of a macro. A missing argument is the zero Value
// until the method defaults sets it.
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
			k.v.n = 1 // mark an undefined argument as passed
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
