package chat

import (
	"math"
	"strconv"
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
			return r.soft(v)
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
	case "abs":
		return filterAbs
	case "round":
		return filterRound
	case "safe":
		return func(r *run, v Value, a args) (Value, error) {
			s, err := r.text(v)
			if err != nil {
				return v, err
			}
			return markupOf(s), a.only(name, 0, 0)
		}
	case "escape", "e", "forceescape":
		return filterEscape(name)
	case "format":
		return filterFormat
	case "attr":
		return filterAttr
	case "center":
		return filterCenter
	case "truncate":
		return filterTruncate
	case "wordcount":
		return filterWordCount
	}
	return collectionFilter(name)
}

// leftOutFilter reports whether Jinja has the filter and this package does not support it.
func leftOutFilter(name string) bool {
	switch name {
	case "filesizeformat", "pprint", "random", "striptags", "urlencode", "urlize", "wordwrap", "xmlattr":
		return true
	}
	return false
}

// soft is Jinja's soft_str: str and Markup are kept.
func (r *run) soft(v Value) (Value, error) {
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
	if v, err = r.soft(v); err != nil {
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
		v, err := r.soft(v)
		if err != nil {
			return v, err
		}
		if name == "title" {
			return r.filterTitle(v)
		}
		if err := r.casing(v.s); err != nil {
			return v, err
		}
		return r.like(v, f(v.s))
	}
}

// filterTitle is Jinja's title: white space, hyphens and opening brackets start words. The result
// is a str, also for Markup.
func (r *run) filterTitle(v Value) (Value, error) {
	if err := r.casing(v.s); err != nil {
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
	if err := r.make(len(v.s)); err != nil {
		return v, err
	}
	out := textBuilder{r: r}
	i := 0
	err = splitLines(v.s+"\n", false, func(line string) error {
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
	return r.like(v, string(out.b))
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
			if err := r.number(v.s); err != nil {
				return v, err
			}
			return v.floatOrDefault(def), nil
		}
		if err := r.number(v.s); err != nil {
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
		if err := r.number(v.s); err != nil {
			return v, err
		}
		if f, ok := parseFloat(v.s); ok {
			return FloatValue(f), nil
		}
	}
	return b.or(0, FloatValue(0)), nil
}

func filterAbs(r *run, v Value, a args) (Value, error) {
	if err := a.only("abs", 0, 0); err != nil {
		return v, err
	}
	switch {
	case v.kind == Float:
		return FloatValue(math.Abs(v.float())), nil
	case v.isInt():
		if v.big().Sign() < 0 {
			return r.negate(v)
		}
		return r.plus(v)
	}
	return v, typeErrorf("bad operand type for abs(): '%s'", typeName(v))
}

func filterRound(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("round", "precision", "method")
	if err != nil {
		return v, err
	}
	method := b.or(1, strOf("common"))
	if !method.isStr() || method.s != "common" && method.s != "ceil" && method.s != "floor" {
		return v, typeErrorf("method must be common, ceil or floor")
	}
	p := b.or(0, IntValue(0))
	if method.s == "common" {
		return r.round(v, p)
	}
	scale, err := r.binary(opPow, IntValue(10), p)
	if err != nil {
		return v, err
	}
	x, err := r.binary(opMul, v, scale)
	if err != nil {
		return v, err
	}
	switch {
	case x.kind == Float:
		f := x.float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return v, valueErrorf("cannot convert float to integer")
		}
		if method.s == "ceil" {
			f = math.Ceil(f)
		} else {
			f = math.Floor(f)
		}
		x = truncFloat(f)
	case !x.isInt():
		return v, typeErrorf("must be a real number, not %s", typeName(x))
	}
	return r.binary(opDiv, x, scale)
}

func (r *run) round(v, p Value) (Value, error) {
	n, ok := p.small()
	if !ok && p.isInt() && v.kind == Float { // with such a precision all results are the same
		n, ok = int64(p.big().Sign())*1000, true
	}
	switch {
	case p.kind == None && v.kind == Float:
		f := math.RoundToEven(v.float())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return v, valueErrorf("cannot convert float to integer")
		}
		return truncFloat(f), nil
	case !ok && p.isInt() && v.isInt():
		if p.big().Sign() > 0 {
			return r.plus(v)
		}
		return IntValue(0), nil
	case !ok && p.kind != None:
		return v, typeErrorf("precision must be an int")
	case v.isInt():
		if n >= 0 || p.kind == None {
			return r.plus(v)
		}
		return r.roundInt(v, n)
	case v.kind != Float:
		if v.kind == Undefined {
			return v, undefinedError(v)
		}
		return v, typeErrorf("type %s doesn't define __round__", typeName(v))
	}
	f := v.float()
	if math.IsNaN(f) || math.IsInf(f, 0) || f == 0 || n > 323 {
		return v, nil
	}
	if n < -308 {
		return FloatValue(math.Copysign(0, f)), nil
	}
	if n >= 0 {
		// Correctly rounded to even, like CPython, with the decimal digits.
		x, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(n), 64), 64)
		return FloatValue(x), nil
	}
	return roundTens(f, int(-n))
}

func filterEscape(name string) filterFunc {
	return func(r *run, v Value, a args) (Value, error) {
		if err := a.only(name, 0, 0); err != nil {
			return v, err
		}
		if v.kind == Markup && name != "forceescape" {
			return v, nil
		}
		s, err := r.text(v)
		if err == nil {
			s, err = r.escape(s)
		}
		return markupOf(s), err
	}
}

func filterFormat(r *run, v Value, a args) (Value, error) {
	if err := a.notAgain("format", "value"); err != nil {
		return v, err
	}
	if len(a.pos) > 0 && len(a.kw) > 0 {
		return v, typeErrorf("can't handle positional and keyword arguments at the same time")
	}
	v, err := r.soft(v)
	if err != nil {
		return v, err
	}
	if len(a.kw) == 0 {
		return r.percent(v, tupleOf(a.pos...)) // percent does not keep them
	}
	m := NewMap(0)
	for _, k := range a.kw {
		if err := r.put(m, strOf(k.name), k.v); err != nil {
			return v, err
		}
	}
	return r.percent(v, MapValue(m))
}

func filterAttr(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("attr", "name!")
	if err != nil {
		return v, err
	}
	if !b.v[0].isStr() {
		return v, typeErrorf("attribute name must be a str")
	}
	if v.kind == Undefined {
		return v, undefinedError(v)
	}
	x, ok, err := r.ownAttr(v, b.v[0].s)
	if err != nil || ok {
		return x, err
	}
	return missingAttr(v, b.v[0].s), nil
}

func filterCenter(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("center", "width")
	if err != nil {
		return v, err
	}
	if v, err = r.soft(v); err != nil {
		return v, err
	}
	one := [1]Value{b.or(0, IntValue(80))}
	return r.justify("center", v, args{pos: one[:]})
}

func filterTruncate(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("truncate", "length", "killwords", "end", "leeway")
	if err != nil {
		return v, err
	}
	// Python's operators check the arguments: they accept any type with the needed methods.
	length, end, leeway := b.or(0, IntValue(255)), b.or(2, strOf("...")), b.or(3, NoneValue())
	if leeway.kind == None {
		leeway = IntValue(5)
	}
	n, err := r.length(end)
	if err != nil {
		return v, err
	}
	for _, least := range [...][2]Value{{length, IntValue(int64(n))}, {leeway, IntValue(0)}} {
		ok, err := r.order(cmpGe, least[0], least[1])
		if err == nil && !ok {
			err = valueErrorf("truncate: expected length >= %d and leeway >= 0", n)
		}
		if err != nil {
			return v, err
		}
	}
	size, err := r.length(v)
	if err != nil {
		return v, err
	}
	most, err := r.binary(opAdd, length, leeway)
	if err != nil {
		return v, err
	}
	if short, err := r.order(cmpLe, IntValue(int64(size)), most); short || err != nil {
		return v, err
	}
	keep, err := r.binary(opSub, length, IntValue(int64(n)))
	if err != nil {
		return v, err
	}
	head, err := r.slice(v, NoneValue(), keep, NoneValue())
	if err != nil {
		return v, err
	}
	if !b.has[1] || !r.truth(b.v[1]) {
		if !v.isStr() {
			return v, typeErrorf("truncate takes a str, not %s", typeName(v))
		}
		if i := strings.LastIndexByte(head.s, ' '); i >= 0 {
			head.s = head.s[:i]
		}
	}
	return r.binary(opAdd, head, end)
}

func filterWordCount(r *run, v Value, a args) (Value, error) {
	if err := a.only("wordcount", 0, 0); err != nil {
		return v, err
	}
	v, err := r.soft(v)
	if err != nil {
		return v, err
	}
	if err := r.pay(len(v.s)>>2, 0); err != nil { // two table lookups per character
		return v, err
	}
	n := int64(0)
	in := false
	for _, c := range v.s {
		word := isNameRune(c) || isNumericRune(c)
		if word && !in {
			n++
		}
		in = word
	}
	return IntValue(n), nil
}
