package chat

import (
	"math"
	"sort"
	"strings"
	"unicode"
)

var filters = map[string]*function{
	"capitalize": fn(filterCase(capitalize)),
	"count":      fn(filterLength),
	"d":          fn(filterDefault, "default_value", "boolean"),
	"default":    fn(filterDefault, "default_value", "boolean"),
	"dictsort":   fn(filterDictSort, "case_sensitive", "by", "reverse"),
	"first":      fn(filterFirst),
	"float":      fn(filterFloat, "default"),
	"indent":     fn(filterIndent, "width", "first", "blank"),
	"int":        fn(filterInt, "default", "-base"),
	"items":      fn(filterItems),
	"join":       fn(filterJoin, "d", "-attribute"),
	"last":       fn(filterLast),
	"length":     fn(filterLength),
	"list":       fn(filterList),
	"lower":      fn(filterCase(toLower)),
	"replace":    fn(filterReplace, "old!", "new!", "count"),
	"safe":       fn(filterSafe),
	"sort":       fn(filterSort, "reverse", "-case_sensitive", "attribute"),
	"string":     fn(filterString),
	"title":      fn(filterTitle),
	"tojson":     fn(filterToJSON, "ensure_ascii", "indent", "separators", "sort_keys"),
	"trim":       fn(filterTrim, "chars"),
	"unique":     fn(filterUnique, "-case_sensitive", "-attribute"),
	"upper":      fn(filterCase(toUpper)),
}

func filterByName(name string) *function {
	switch name {
	case "map":
		return &function{variadic: filterMap}
	case "select", "reject":
		return &function{variadic: filterSelect(name, false, name == "select")}
	case "selectattr", "rejectattr":
		return &function{variadic: filterSelect(name, true, name == "selectattr")}
	}
	return filters[name]
}

// softStr is the equivalent of Jinja's soft_str. It converts a value to text, but returns a str or
// Markup unchanged.
func (r *run) softStr(v Value) (Value, error) {
	if v.isStr() {
		return v.plain(), nil
	}
	s, err := r.text(v)
	return strOf(s), err
}

func filterLength(r *run, v Value, _ bound) (Value, error) {
	n, err := r.length(v)
	return IntValue(int64(n)), err
}

func filterString(r *run, v Value, _ bound) (Value, error) {
	if v.isStr() {
		return v, nil // Markup stays Markup
	}
	return r.softStr(v)
}

func filterSafe(r *run, v Value, _ bound) (Value, error) {
	s, err := r.text(v)
	return markupOf(s), err
}

func filterDefault(_ *run, v Value, b bound) (Value, error) {
	if v.kind == Undefined || truth(b.at(1)) && !truth(v) {
		return b.or(0, strOf("")), nil
	}
	return v, nil
}

func filterTrim(r *run, v Value, b bound) (Value, error) {
	v, err := r.softStr(v)
	if err != nil {
		return v, err
	}
	return stripBoth(r, v, b)
}

func filterCase(f func(string) string) func(r *run, v Value, _ bound) (Value, error) {
	change := changeCase(f)
	return func(r *run, v Value, b bound) (Value, error) {
		v, err := r.softStr(v)
		if err != nil {
			return v, err
		}
		return change(r, v, b)
	}
}

func filterTitle(r *run, v Value, b bound) (Value, error) {
	v, err := r.softStr(v)
	if err != nil {
		return v, err
	}
	return changeCase(titleWords)(r, strOf(v.s), b) // the result is a str, even for Markup
}

func filterReplace(r *run, v Value, b bound) (Value, error) {
	n, err := replaceCount(b)
	if err != nil {
		return v, err
	}
	var s [3]string
	for i, x := range [...]Value{v, b.at(0), b.at(1)} {
		if s[i], err = r.text(x); err != nil {
			return v, err
		}
	}
	return r.replace(strOf(s[0]), s[1], s[2], n)
}

func filterIndent(r *run, v Value, b bound) (Value, error) {
	pad := ""
	if w := b.or(0, IntValue(4)); w.kind == String {
		pad = w.s
	} else if n, ok := w.small(); !ok {
		return v, unsupportedf("an indent that is neither a small int nor a str")
	} else if n > 1<<20 {
		return v, limitErrorf("indent of more than %d spaces", 1<<20)
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
	first, blank := truth(b.at(1)), truth(b.at(2))
	if err := r.payText(len(v.s)); err != nil {
		return v, err
	}
	out := textBuilder{r: r}
	i := 0
	err := splitLines(v.s+"\n", func(line string) error {
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

func filterJoin(r *run, v Value, b bound) (Value, error) {
	items, err := r.collect(v)
	if err != nil {
		return v, err
	}
	d, err := r.text(b.or(0, strOf("")))
	if err != nil {
		return v, err
	}
	return r.join(d, items, r.text)
}

func filterInt(r *run, v Value, b bound) (Value, error) {
	def := b.or(0, IntValue(0))
	switch {
	case v.kind == Undefined:
		return v, undefinedError(v)
	case v.isInt():
		return Value{kind: Int, n: v.n, s: v.s}, nil
	case v.kind == Float && math.IsInf(v.float(), 0):
		return v, valueErrorf("cannot convert float infinity to integer")
	case v.isStr():
		if err := r.payNumber(v.s); err != nil {
			return v, err
		}
		if n, ok, err := parseInt(v.s); ok || err != nil {
			return n, err
		}
		f, ok := parseFloat(v.s)
		if !ok {
			return def, nil
		}
		v = FloatValue(f)
	}
	if f := v.float(); v.kind == Float && !math.IsNaN(f) && !math.IsInf(f, 0) {
		return truncFloat(f)
	}
	return def, nil
}

func filterFloat(r *run, v Value, b bound) (Value, error) {
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

// A getterFunc returns the value that a filter uses for an element, such as an attribute of the
// element.
type getterFunc func(Value) (Value, error)

// getter returns a function that follows a path such as "function.name" or 0. If the path is None,
// the function returns the element itself. An undefined result is replaced with def, unless def is
// None or the zero Value.
func (r *run) getter(path, def Value) (getterFunc, error) {
	keys, err := r.attributePath(path)
	if err != nil {
		return nil, err
	}
	hasDefault := def.kind != None && (def.kind != Undefined || def.s != "" || def.n != 0)
	return func(v Value) (Value, error) {
		for _, k := range keys {
			switch v.ref.(type) {
			case *namespace, *loopObject: // these objects can change before Python evaluates the filter
				return v, unsupportedf("an attribute of '%s' in a filter", typeName(v))
			}
			err := r.pay(2, 0)
			if err == nil {
				v, err = r.item(v, k)
			}
			if err != nil {
				return v, err
			}
			if hasDefault && v.kind == Undefined {
				v = def
			}
		}
		return v, nil
	}, nil
}

func (r *run) attributePath(path Value) ([]Value, error) {
	switch {
	case path.kind == None:
		return nil, nil
	case !path.isStr():
		return []Value{path}, nil
	}
	if err := r.payRead(len(path.s)); err != nil {
		return nil, err
	}
	keys := listBuilder{r: r}
	for p := range strings.SplitSeq(path.s, ".") {
		if p != "" && strings.IndexFunc(p, func(c rune) bool { return !unicode.IsNumber(c) }) < 0 {
			return nil, unsupportedf("the attribute '%.40s', which is a number", p) // Python would convert the name to an int
		}
		if err := keys.add(strOf(p)); err != nil {
			return nil, err
		}
	}
	return keys.items, nil
}

func filterList(r *run, v Value, _ bound) (Value, error) {
	items, err := r.collect(v)
	if err != nil {
		return v, err
	}
	return r.list(items)
}

func filterItems(r *run, v Value, _ bound) (Value, error) {
	g := &generator{}
	if m := v.Map(); m != nil {
		g.items, g.err = (&view{m, 'i'}).items(r)
	} else if v.kind != Undefined {
		g.err = typeErrorf("can only get item pairs from a mapping")
	}
	return objectOf(g), r.pay(0, objectBytes)
}

func filterFirst(r *run, v Value, _ bound) (Value, error) {
	if v.isStr() && v.s != "" {
		return strOf(v.s[:runeLen(v.s)]), nil
	}
	it, err := r.iterate(v)
	if err != nil {
		return v, err
	}
	if len(it.items) == 0 {
		return undefinedMessage("No first item, sequence was empty."), it.err
	}
	return it.items[0], nil
}

func filterLast(r *run, v Value, _ bound) (Value, error) {
	switch v.ref.(type) {
	case *seq, *Map, *rangeObject, *view, nil, *enum:
	default:
		return v, typeErrorf("'%s' object is not reversible", typeName(v))
	}
	items, err := r.collect(v)
	if err != nil {
		return v, err
	}
	if len(items) == 0 {
		return undefinedMessage("No last item, sequence was empty."), nil
	}
	last := items[len(items)-1]
	if v.kind == Markup { // Python yields Markup characters when it iterates in reverse
		last.kind = Markup
	}
	return last, nil
}

// sorted sorts items by their keys. Like Python's sort, it is stable and uses only the operator <.
func (r *run) sorted(items []Value, key getterFunc, less lessFunc, reverse bool) (Value, error) {
	if err := r.pay(len(items), times(len(items), 5*valueBytes)); err != nil {
		return Value{}, err
	}
	keys := make([]Value, len(items))
	order := make([]int, len(items))
	for i, x := range items {
		k, err := key(x)
		if err != nil {
			return Value{}, err
		}
		keys[i], order[i] = k, i
	}
	var failed error
	sort.SliceStable(order, func(i, j int) bool {
		if failed != nil {
			return false
		}
		a, b := keys[order[i]], keys[order[j]]
		if reverse {
			a, b = b, a
		}
		before, err := less(a, b)
		if err != nil {
			failed = err
		}
		return before
	})
	if failed != nil {
		return Value{}, failed
	}
	out := make([]Value, len(items))
	for i, j := range order {
		out[i] = items[j]
	}
	return r.list(out)
}

// A lessFunc reports whether key a sorts before key b.
type lessFunc func(a, b Value) (bool, error)

// less is the lessFunc of the filter sort. In Python, each key is a list, and a comparison of lists
// skips equal elements. Therefore comparing two None values is not an error.
func (r *run) less(a, b Value) (bool, error) {
	if eq, err := r.same(a, b, 0); eq || err != nil {
		return false, err
	}
	return r.order(cmpLt, a, b)
}

// folded returns text in lower case, and any other value unchanged.
func (r *run) folded(v Value) (Value, error) {
	if !v.isStr() {
		return v, nil
	}
	return lowered(r, v, nil)
}

func filterSort(r *run, v Value, b bound) (Value, error) {
	path := b.or(2, NoneValue())
	switch {
	case b.has(0) && b.at(0).kind != Bool:
		return v, unsupportedf("argument 'reverse' of sort that is not a bool")
	case path.isStr() && strings.Contains(path.s, ","):
		return v, unsupportedf("filter 'sort' by several attributes")
	}
	get, err := r.getter(path, Value{})
	if err != nil {
		return v, err
	}
	items, err := r.collect(v)
	if err != nil {
		return v, err
	}
	key := func(x Value) (Value, error) {
		k, err := get(x)
		if err != nil {
			return k, err
		}
		return r.folded(k)
	}
	return r.sorted(items, key, r.less, truth(b.at(0)))
}

func filterDictSort(r *run, v Value, b bound) (Value, error) {
	by, m := b.or(1, strOf("key")), v.Map()
	switch {
	case v.kind == Undefined:
		return v, undefinedError(v)
	case m == nil:
		return v, typeErrorf("'%s' object has no attribute 'items'", typeName(v))
	case !by.isStr() || by.s != "key" && by.s != "value":
		return v, valueErrorf("dictsort sorts by 'key' or 'value'")
	case b.has(2) && b.at(2).kind != Bool:
		return v, unsupportedf("argument 'reverse' of dictsort that is not a bool")
	}
	at := 0
	if by.s == "value" {
		at = 1
	}
	return r.sortedPairs(m, at, !truth(b.at(0)), truth(b.at(2)))
}

// sortedPairs returns the key-value pairs of a dict, sorted by key if the parameter at is 0, or by
// value if it is 1. If fold is true, strings are compared in lower case.
func (r *run) sortedPairs(m *Map, at int, fold, reverse bool) (Value, error) {
	pairs, err := (&view{m, 'i'}).items(r)
	if err != nil {
		return Value{}, err
	}
	key := func(x Value) (Value, error) {
		if x = x.Items()[at]; fold {
			return r.folded(x)
		}
		return x, nil
	}
	return r.sorted(pairs, key, func(a, b Value) (bool, error) { return r.order(cmpLt, a, b) }, reverse)
}

func filterUnique(r *run, v Value, _ bound) (Value, error) {
	seen := NewMap(0)
	return r.generate(v, func(x Value) (Value, bool, error) {
		k, err := r.folded(x)
		if err != nil {
			return x, false, err
		}
		before := seen.Len()
		err = r.put(seen, k, NoneValue())
		return x, seen.Len() > before, err
	})
}
