package chat

import (
	"fmt"
	"slices"
)

// lookup returns a variable: an input, or else a global function.
func (r *run) lookup(i int) Value {
	if !r.know[i] {
		r.know[i] = true
		r.ctx[i] = r.global(r.t.names[i])
	}
	return r.ctx[i]
}

func (r *run) global(name string) Value {
	if r.in.Extra != nil {
		if v, ok := r.in.Extra.Get(name); ok {
			return v
		}
	}
	none := func(v Value) Value {
		if v.kind == Undefined {
			return NoneValue()
		}
		return v
	}
	switch name {
	case "messages":
		return none(r.in.Messages)
	case "tools":
		return none(r.in.Tools)
	case "documents":
		return none(r.in.Documents)
	case "add_generation_prompt":
		return BoolValue(r.in.AddGenerationPrompt)
	}
	o := &r.t.opts
	switch {
	case name == "bos_token" && o.BOSToken != "":
		return StringValue(o.BOSToken)
	case name == "eos_token" && o.EOSToken != "":
		return StringValue(o.EOSToken)
	}
	if s, ok := o.Tokens[name]; ok {
		return StringValue(s)
	}
	if f := globalFunction(name); f != nil {
		return objectOf(&builtin{name, f})
	}
	return Value{}
}

func globalFunction(name string) func(r *run, a args) (Value, error) {
	switch name {
	case "raise_exception":
		return raiseException
	case clockName:
		return strftimeNow
	case "namespace":
		return newNamespace
	case "range":
		return newRange
	}
	return nil
}

func raiseException(r *run, a args) (Value, error) {
	b, err := a.bind("raise_exception", "message!")
	if err != nil {
		return Value{}, err
	}
	s, err := r.text(b.v[0])
	if err != nil {
		return Value{}, err
	}
	return Value{}, fmt.Errorf("%w: %s", ErrRaised, s)
}

const clockName = "strftime_now"

func strftimeNow(r *run, a args) (Value, error) {
	b, err := a.bind(clockName, "format!")
	if err != nil {
		return Value{}, err
	}
	if !b.v[0].isStr() {
		return Value{}, typeErrorf("strftime() argument must be str, not %s", typeName(b.v[0]))
	}
	format := b.v[0].s
	if r.in.Now.IsZero() {
		return Value{}, fmt.Errorf("%w: strftime_now without a time in Input.Now", ErrUnsupported)
	}
	if err := r.payText(len(format)); err != nil {
		return Value{}, err
	}
	if f := r.in.Formats; f != nil && !slices.Contains(*f, format) {
		*f = append(*f, format)
	}
	s, err := Strftime(r.in.Now, format)
	if err != nil {
		return Value{}, err
	}
	return r.str(s)
}

// fill adds the arguments of dict() and namespace(): a mapping or sequence of pairs, and keywords.
func (r *run) fill(m *Map, a args) error {
	if len(a.pos) > 1 {
		return typeErrorf("dict expected at most 1 argument, got %d", len(a.pos))
	}
	if len(a.pos) == 1 {
		v := a.pos[0]
		if v.kind == Undefined { // Python reads its attribute keys
			return undefinedError(v)
		}
		if from := v.Map(); from != nil {
			for i, k := range from.keys {
				if err := r.put(m, k, from.vals[i]); err != nil {
					return err
				}
			}
		} else {
			items, err := r.collect(v)
			if err != nil {
				return err
			}
			for _, x := range items {
				pair, err := r.collect(x)
				if err != nil {
					return err
				}
				if len(pair) != 2 {
					return valueErrorf("dictionary update sequence element has length %d; 2 is required", len(pair))
				}
				if err := r.put(m, pair[0], pair[1]); err != nil {
					return err
				}
			}
		}
	}
	for _, k := range a.kw {
		if err := r.put(m, strOf(k.name), k.v); err != nil {
			return err
		}
	}
	return r.pay(0, objectBytes)
}

func newNamespace(r *run, a args) (Value, error) {
	ns := &namespace{}
	r.cyclic = true
	if err := r.fill(&ns.attrs, a); err != nil {
		return Value{}, err
	}
	return objectOf(ns), r.checkNames(&ns.attrs)
}

// maxRange is the longest range that Jinja's sandbox allows.
const maxRange = 100_000

func newRange(_ *run, a args) (Value, error) {
	if err := a.only("range", 1, 3); err != nil {
		return Value{}, err
	}
	var n [3]int64
	for i, v := range a.pos {
		if !v.isInt() {
			return Value{}, typeErrorf("'%s' object cannot be interpreted as an integer", typeName(v))
		}
		var ok bool
		if n[i], ok = v.small(); !ok {
			return Value{}, limitErrorf("range bound does not fit in 64 bits")
		}
	}
	o := &rangeObject{0, n[0], 1}
	if len(a.pos) > 1 {
		o.start, o.stop = n[0], n[1]
	}
	if len(a.pos) > 2 {
		if o.step = n[2]; o.step == 0 {
			return Value{}, valueErrorf("range() arg 3 must not be zero")
		}
	}
	if l := o.len(); l > maxRange || l < 0 {
		return Value{}, limitErrorf("range of more than %d", maxRange)
	}
	return objectOf(o), nil
}
