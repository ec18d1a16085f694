package chat

import (
	"math"
	"strings"
)

type filterFunc func(r *run, v Value, a args) (Value, error)

func filterByName(name string) filterFunc {
	switch name {
	case "tojson":
		return filterToJSON
	case "default", "d":
		return filterDefault
	case "length", "count":
		return func(r *run, v Value, a args) (Value, error) {
			if err := a.only(name, 0, 0); err != nil {
				return v, err
			}
			n, err := r.length(v)
			return IntValue(int64(n)), err
		}
	case "string":
		return func(r *run, v Value, a args) (Value, error) {
			if err := a.only(name, 0, 0); err != nil {
				return v, err
			}
			if v.isStr() {
				return v, nil // Markup is kept
			}
			return r.softStr(v)
		}
	case "trim":
		return filterTrim
	case "lower", "upper", "capitalize", "title":
		return filterCase(name)
	case "replace":
		return filterReplace
	case "indent":
		return filterIndent
	case "join":
		return filterJoin
	case "int":
		return filterInt
	case "float":
		return filterFloat
	case "safe":
		return func(r *run, v Value, a args) (Value, error) {
			s, err := r.text(v)
			if err != nil {
				return v, err
			}
			return markupOf(s), a.only(name, 0, 0)
		}
	}
	return collectionFilter(name)
}

// softStr is Jinja's soft_str: str and Markup are kept.
func (r *run) softStr(v Value) (Value, error) {
	if v.isStr() {
		return v.plain(), nil
	}
	s, err := r.text(v)
	return strOf(s), err
}

func filterDefault(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("default", "default_value", "boolean")
	if err != nil {
		return v, err
	}
	if v.kind == Undefined || b.has[1] && r.truth(b.v[1]) && !r.truth(v) {
		return b.or(0, strOf("")), nil
	}
	return v, nil
}

func filterTrim(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("trim", "chars")
	if err != nil {
		return v, err
	}
	if v, err = r.softStr(v); err != nil {
		return v, err
	}
	one := [1]Value{b.or(0, NoneValue())}
	return r.strip("strip", v, args{pos: one[:]}, true, true)
}

func filterCase(name string) filterFunc {
	f := caseMethod(name)
	return func(r *run, v Value, a args) (Value, error) {
		if err := a.only(name, 0, 0); err != nil {
			return v, err
		}
		v, err := r.softStr(v)
		if err != nil {
			return v, err
		}
		if name == "title" {
			return r.filterTitle(v)
		}
		if err := r.payCase(v.s); err != nil {
			return v, err
		}
		return r.sameKind(v, f(v.s))
	}
}

// filterTitle is Jinja's title: white space, hyphens and opening brackets start words. The result
// is a str, also for Markup.
func (r *run) filterTitle(v Value) (Value, error) {
	if err := r.payCase(v.s); err != nil {
		return v, err
	}
	var b strings.Builder
	word := ""
	flush := func() {
		if word != "" {
			n := runeLen(word)
			b.WriteString(toUpper(word[:n]))
			b.WriteString(toLower(word[n:]))
			word = ""
		}
	}
	start := 0
	for i, c := range v.s {
		if isSpace(c) || strings.ContainsRune("-({[<", c) {
			word = v.s[start:i]
			flush()
			// Jinja treats a run of separators as one item and lowercases all but its first
			// character. That changes no separator.
			b.WriteRune(c)
			start = i + len(string(c))
		}
	}
	word = v.s[start:]
	flush()
	return r.str(b.String())
}

func filterReplace(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("replace", "old!", "new!", "count")
	if err != nil {
		return v, err
	}
	n := int64(-1)
	if c := b.or(2, NoneValue()); c.kind != None {
		var ok bool
		if n, ok = c.small(); !ok {
			return v, typeErrorf("replace: count must be an int")
		}
	}
	var s [3]string
	for i, x := range [...]Value{v, b.v[0], b.v[1]} {
		if s[i], err = r.text(x); err != nil {
			return v, err
		}
	}
	return r.replace(strOf(s[0]), s[1], s[2], n)
}

func filterIndent(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("indent", "width", "first", "blank")
	if err != nil {
		return v, err
	}
	pad := ""
	if w := b.or(0, IntValue(4)); w.isStr() {
		pad = w.s
	} else if n, ok := w.small(); !ok {
		return v, typeErrorf("indent: width must be an int or a str")
	} else if n > 1<<20 {
		return v, limitErrorf("indent of more than %d", 1<<20)
	} else if err := r.pay(0, int(max(n, 0))); err != nil {
		return v, err
	} else {
		pad = strings.Repeat(" ", int(max(n, 0)))
	}
	switch {
	case v.kind == Undefined:
		return v, undefinedError(v)
	case !v.isStr():
		return v, typeErrorf("indent takes a str, not %s", typeName(v))
	}
	if v.kind == Markup && b.has[0] && b.v[0].kind == Markup {
		// If both are Markup, nothing must be escaped.
		pad = b.v[0].s
	}
	first, blank := b.has[1] && r.truth(b.v[1]), b.has[2] && r.truth(b.v[2])
	if err := r.payText(len(v.s)); err != nil {
		return v, err
	}
	out := textBuilder{r: r}
	i := 0
	err = splitLines(v.s+"\n", func(line string) error {
		if i > 0 {
			if err := out.add("\n"); err != nil {
				return err
			}
		}
		if i == 0 && first || i > 0 && (blank || line != "") {
			if err := out.add(pad); err != nil {
				return err
			}
		}
		i++
		return out.add(line)
	})
	if err != nil {
		return v, err
	}
	return r.sameKind(v, string(out.b))
}

func filterJoin(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("join", "d", "attribute")
	if err != nil {
		return v, err
	}
	items, err := r.collect(v)
	if err != nil {
		return v, err
	}
	get, err := r.getter(b.or(1, NoneValue()), Value{}, false)
	if err != nil {
		return v, err
	}
	d, err := r.text(b.or(0, strOf("")))
	if err != nil {
		return v, err
	}
	if err := r.pay(len(items), times(len(items), valueBytes)); err != nil {
		return v, err
	}
	parts := make([]string, len(items))
	for i, x := range items {
		if x, err = get(x); err != nil {
			return v, err
		}
		if parts[i], err = r.text(x); err != nil {
			return v, err
		}
	}
	return r.joined(strOf(d), parts)
}

func filterInt(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("int", "default", "base")
	if err != nil {
		return v, err
	}
	def := b.or(0, IntValue(0))
	switch {
	case v.kind == Undefined:
		return v, undefinedError(v)
	case v.isInt():
		return r.plus(v)
	case v.kind == Float:
		if f := v.float(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return truncFloat(f), nil
		} else if math.IsInf(f, 0) {
			return v, valueErrorf("cannot convert float infinity to integer")
		}
		return def, nil
	case v.isStr():
		base, ok := b.or(1, IntValue(10)).small()
		if !ok || base < 0 || base > 36 { // not a valid base
			if err := r.payNumber(v.s); err != nil {
				return v, err
			}
			return v.floatOrDefault(def), nil
		}
		if err := r.payNumber(v.s); err != nil {
			return v, err
		}
		n, ok := parseInt(v.s, int(base))
		switch {
		case !ok:
			return v.floatOrDefault(def), nil
		case n.big().BitLen() > maxIntBits:
			return v, limitErrorf("integer of more than %d bits", maxIntBits)
		}
		return n, nil
	}
	return def, nil
}

// floatOrDefault is the int filter's result for text that is not an int.
func (v Value) floatOrDefault(def Value) Value {
	f, ok := parseFloat(v.s)
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return def
	}
	return truncFloat(f)
}

func filterFloat(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("float", "default")
	if err != nil {
		return v, err
	}
	switch {
	case v.kind == Undefined:
		return v, undefinedError(v)
	case isNumber(v):
		f, err := toFloat(v)
		return FloatValue(f), err
	case v.isStr():
		if err := r.payNumber(v.s); err != nil {
			return v, err
		}
		if f, ok := parseFloat(v.s); ok {
			return FloatValue(f), nil
		}
	}
	return b.or(0, FloatValue(0)), nil
}
