package chat

type (
	// A namespace is the only object that a template can change.
	namespace struct{ attrs Map }

	// A macro is a macro or the body of a call block, with its enclosing variables.
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

	// An interval is Python's range.
	interval struct{ start, stop, step int64 }

	// A view is the result of keys, values or items of a dict.
	view struct {
		of   *Map
		kind byte // 'k', 'v', 'i'
	}

	// A sharedIter is an iterator that is a value. It can be exhausted.
	sharedIter struct {
		items []Value
		pos   int
		fn    func(r *run) (Value, bool, error)
	}

	cycler struct {
		items []Value
		pos   int
	}

	joiner struct {
		sep  Value
		used bool
	}
)

// class returns Python's text of a function that is a class, or empty for other functions.
func (b *builtin) class() string {
	switch b.name {
	case "dict":
		return "<class 'dict'>"
	case "namespace", "cycler", "joiner":
		return "<class 'jinja2.utils." + string(b.name[0]-'a'+'A') + b.name[1:] + "'>"
	}
	return ""
}

// class returns the Python class that implements the method.
func (m *method) class() string {
	switch m.of.ref.(type) {
	case *cycler:
		return "Cycler"
	case *loopObject:
		return "LoopContext"
	}
	return "Markup"
}

type methodFunc func(r *run, v Value, a args) (Value, error)

// An iter iterates over a value. It uses either items or obj.
type iter struct {
	items []Value
	pos   int
	obj   *sharedIter
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

func (s *sharedIter) next(r *run) (Value, bool, error) {
	if s.fn == nil {
		if s.pos >= len(s.items) {
			return Value{}, false, nil
		}
		s.pos++
		return s.items[s.pos-1], true, nil
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
		s.fn, s.items, s.pos = nil, nil, 0
	}
	return v, ok, err
}

// maxGenerators is the maximum nesting of generators. Python's own limit is close to it.
const maxGenerators = 900

func generator(fn func(r *run) (Value, bool, error)) iter {
	return iter{obj: &sharedIter{fn: fn}}
}

// lazy returns a generator as a value.
func (r *run) lazy(fn func(r *run) (Value, bool, error)) (Value, error) {
	return objectOf(&sharedIter{fn: fn}), r.pay(0, 3*objectBytes)
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
		case *sharedIter:
			return iter{obj: o}, nil
		case *interval:
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

func (o *interval) len() int64 {
	switch {
	case o.step > 0 && o.start < o.stop:
		return int64((uint64(o.stop)-uint64(o.start)-1)/uint64(o.step)) + 1
	case o.step < 0 && o.start > o.stop:
		return int64((uint64(o.start)-uint64(o.stop)-1)/(-uint64(o.step))) + 1
	}
	return 0
}

func (o *interval) at(i int64) Value { return IntValue(o.start + i*o.step) }

// A loopObject is the variable loop. It reads one element ahead only if the template needs it.
type loopObject struct {
	it    iter
	of    Value
	loop  *forStmt // set only in a recursive loop
	env   *env     // the scope around the recursive loop
	depth int

	index           int
	length          int
	known           bool
	after           Value
	peeked, some    bool
	current, before Value
	changed         []Value
	asked           bool
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
	case "depth":
		return IntValue(int64(l.depth) + 1), true, nil
	case "depth0":
		return IntValue(int64(l.depth)), true, nil
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
	case "cycle":
		return objectOf(&method{objectOf(l), name, func(_ *run, _ Value, a args) (Value, error) {
			if len(a.pos) == 0 || len(a.kw) > 0 {
				return Value{}, typeErrorf("no items for cycling given")
			}
			return a.pos[l.index%len(a.pos)], nil
		}}), true, nil
	case "changed":
		return objectOf(&method{objectOf(l), name, func(r *run, _ Value, a args) (Value, error) {
			if len(a.kw) > 0 {
				return Value{}, typeErrorf("changed takes no keyword arguments")
			}
			same := l.asked
			if same {
				eq, err := r.equalItems(l.changed, a.pos)
				if err != nil {
					return Value{}, err
				}
				same = eq
			}
			if !same {
				if err := r.pay(len(a.pos), valueBytes*len(a.pos)); err != nil {
					return Value{}, err
				}
				l.asked = true
				l.changed = append([]Value(nil), a.pos...)
			}
			return BoolValue(!same), nil
		}}), true, nil
	}
	return Value{}, false, nil
}

func (r *run) callMacro(m *macro, a args) (Value, error) {
	b := m.body
	if err := r.call(); err != nil {
		return Value{}, err
	}
	// Each parameter is searched among the keywords, and each variable is cleared.
	if err := r.pay(b.slots>>3+times(len(b.params), len(a.kw))>>2, 0); err != nil {
		return Value{}, err
	}
	outer, line := r.env, r.line
	e := r.newEnv(b.slots, m.env)
	err := b.bind(r, e, a)
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
func (b *macroBody) bind(r *run, e *env, a args) error {
	set := func(p place, v Value) { e.slots[p.slot] = v }
	n := min(len(a.pos), len(b.params))
	for i := range n {
		set(b.params[i].place, a.pos[i])
	}
	used := 0
	foundCaller := n == len(b.params) && b.explicit
	for i := n; i < len(b.params); i++ {
		p := &b.params[i]
		v, ok := a.keyword(p.name)
		if ok {
			used++
			if v.kind == Undefined && v.s == "" && v.n == 0 {
				v.n = 1 // mark an undefined argument as given
			}
		}
		if p.name == "caller" {
			foundCaller = true
		}
		set(p.place, v)
	}
	callerUsed := false
	if b.caller != nowhere && !foundCaller {
		v, ok := a.keyword("caller")
		if ok {
			used++
			callerUsed = true
		}
		if !ok || v.kind == None {
			v = undefinedMessage("no caller defined")
		}
		set(b.caller, v)
	}
	if b.kwargs != nowhere {
		m := NewMap(0)
		for _, k := range a.kw {
			if b.takes(k.name, n) || k.name == "caller" && callerUsed {
				continue
			}
			if err := r.put(m, strOf(k.name), k.v); err != nil {
				return err
			}
		}
		set(b.kwargs, MapValue(m))
	} else if used < len(a.kw) {
		for _, k := range a.kw {
			if !b.takes(k.name, n) && (k.name != "caller" || !callerUsed) {
				return typeErrorf("macro '%s' takes no keyword argument '%s'", b.name, k.name)
			}
		}
	}
	if b.varargs != nowhere {
		if err := r.pay(0, listBytes+valueBytes*(len(a.pos)-n)); err != nil {
			return err
		}
		set(b.varargs, tupleOf(append([]Value(nil), a.pos[n:]...)...))
	} else if len(a.pos) > len(b.params) {
		return typeErrorf("macro '%s' takes not more than %d argument(s)", b.name, len(b.params))
	}
	return nil
}

// takes reports whether the keyword is a parameter after the first n.
func (b *macroBody) takes(name string, n int) bool {
	for i := n; i < len(b.params); i++ {
		if b.params[i].name == name {
			return true
		}
	}
	return false
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
