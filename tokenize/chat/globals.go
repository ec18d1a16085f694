package chat

import (
	"fmt"
	"slices"
	"strings"
)

// lookup returns the value of the variable Template.names[i]: an input or, if there is no such
// input, a global function.
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
	if f := globals[name]; f != nil {
		return objectOf(&builtin{name, f})
	}
	return Value{}
}

var globals = map[string]*function{
	"namespace":       {variadic: newNamespace},
	"raise_exception": fn(raiseException, "message!"),
	"range":           fn(newRange, "/a!", "/b", "/c"),
	clockName:         fn(strftimeNow, "format!"),
}

func raiseException(r *run, v Value, b bound) (Value, error) {
	s, err := r.text(b.at(0))
	if err != nil {
		return v, err
	}
	return v, fmt.Errorf("%w: %s", ErrRaised, s)
}

const clockName = "strftime_now"

func strftimeNow(r *run, _ Value, b bound) (Value, error) {
	if !b.at(0).isStr() {
		return Value{}, typeErrorf("strftime() argument must be str, not %s", typeName(b.at(0)))
	}
	format := b.at(0).s
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

// checkNamespace refuses positional arguments, and names that some versions of the transformers
// library do not accept.
func checkNamespace(a args) error {
	if len(a.pos) > 0 {
		return unsupportedf("a positional argument of namespace")
	}
	for _, k := range a.kw {
		if strings.HasPrefix(k.name, "_") {
			return unsupportedf("the attribute '%s' of a namespace", k.name)
		}
	}
	return nil
}

func newNamespace(r *run, v Value, a args) (Value, error) {
	if err := checkNamespace(a); err != nil {
		return v, err
	}
	ns := &namespace{}
	for _, k := range a.kw {
		if err := r.put(&ns.attrs, strOf(k.name), k.v); err != nil {
			return v, err
		}
	}
	return objectOf(ns), r.pay(0, objectBytes)
}

// maxRange is the longest range that Jinja's sandbox allows.
const maxRange = 100_000

func newRange(_ *run, v Value, b bound) (Value, error) {
	var n [3]int64
	for i, x := range b {
		var ok bool
		if n[i], ok = x.small(); !ok {
			return v, typeErrorf("'%s' object is not an int of 64 bits", typeName(x))
		}
	}
	o := &rangeObject{0, n[0], 1}
	if b.has(1) {
		o.start, o.stop = n[0], n[1]
	}
	if b.has(2) {
		if o.step = n[2]; o.step == 0 {
			return v, valueErrorf("range() arg 3 must not be zero")
		}
	}
	if l := o.len(); l > maxRange || l < 0 {
		return v, limitErrorf("range of more than %d numbers", maxRange)
	}
	return objectOf(o), nil
}
