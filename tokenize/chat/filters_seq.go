package chat

import (
	"errors"
	"sort"
	"strings"
	"unicode"
)

func collectionFilter(name string) filterFunc {
	switch name {
	case "list":
		return filterList
	case "items":
		return filterItems
	case "first":
		return filterFirst
	case "last":
		return filterLast
	case "sort":
		return filterSort
	case "dictsort":
		return filterDictSort
	case "unique":
		return filterUnique
	case "map":
		return filterMap
	case "select":
		return filterSelect(name, false, true)
	case "reject":
		return filterSelect(name, false, false)
	case "selectattr":
		return filterSelect(name, true, true)
	case "rejectattr":
		return filterSelect(name, true, false)
	}
	return nil
}

// A getterFunc returns the attribute of an element that a filter uses.
type getterFunc func(Value) (Value, error)

// getter returns a function that follows a path such as "function.name" or 0. The path None returns
// the element itself. A default other than None or the zero Value replaces undefined.
func (r *run) getter(path, def Value, fold bool) (getterFunc, error) {
	keys, err := r.attributePath(path)
	if err != nil {
		return nil, err
	}
	hasDefault := def.kind != None && (def.kind != Undefined || def.s != "" || def.n != 0)
	return func(v Value) (Value, error) {
		for _, k := range keys {
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
		if fold {
			return r.folded(v)
		}
		return v, nil
	}, nil
}

// folded returns text in lower case, and any other value unchanged.
func (r *run) folded(v Value) (Value, error) {
	if !v.isStr() {
		return v, nil
	}
	if err := r.payCase(v.s); err != nil {
		return v, err
	}
	return Value{kind: v.kind, s: toLower(v.s)}, nil
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
		key := strOf(p)
		if p != "" && strings.IndexFunc(p, func(c rune) bool { return !unicode.IsNumber(c) }) < 0 {
			if !isASCII(p) { // Python converts some of these numbers to an int
				return nil, unsupportedf("an attribute '%s'", p)
			}
			if err := r.payNumber(p); err != nil {
				return nil, err
			}
			n, ok := parseInt(p, 10)
			if !ok {
				return nil, valueErrorf("invalid number in an attribute")
			}
			key = n
		}
		if err := keys.add(key); err != nil {
			return nil, err
		}
	}
	return keys.items, nil
}

func filterList(r *run, v Value, a args) (Value, error) {
	if err := a.only("list", 0, 0); err != nil {
		return v, err
	}
	items, err := r.collect(v)
	if err != nil {
		return v, err
	}
	return r.list(items)
}

func filterItems(r *run, v Value, a args) (Value, error) {
	if err := a.only("items", 0, 0); err != nil {
		return v, err
	}
	pos := 0
	return r.lazy(func(r *run) (Value, bool, error) {
		if v.kind == Undefined {
			return Value{}, false, nil
		}
		m := v.Map()
		if m == nil {
			return Value{}, false, typeErrorf("can only get item pairs from a mapping")
		}
		if pos >= m.Len() {
			return Value{}, false, nil
		}
		pos++
		return tupleOf(m.keys[pos-1], m.vals[pos-1]), true, r.pay(0, listBytes+2*valueBytes)
	})
}

func filterFirst(r *run, v Value, a args) (Value, error) {
	if err := a.only("first", 0, 0); err != nil {
		return v, err
	}
	it, err := r.iterate(v)
	if err != nil {
		return v, err
	}
	x, ok, err := it.next(r)
	if !ok && err == nil {
		return undefinedMessage("No first item, sequence was empty."), nil
	}
	return x, err
}

func filterLast(r *run, v Value, a args) (Value, error) {
	if err := a.only("last", 0, 0); err != nil {
		return v, err
	}
	items, err := r.reversible(v)
	if err != nil {
		return v, err
	}
	if len(items) == 0 {
		return undefinedMessage("No last item, sequence was empty."), nil
	}
	last := items[len(items)-1]
	if v.kind == Markup { // in reverse order, Python yields Markup characters
		last.kind = Markup
	}
	return last, nil
}

// reversible returns the elements of a value that Python can iterate in reverse.
func (r *run) reversible(v Value) ([]Value, error) {
	switch v.kind {
	case List, Tuple, Dict, String, Markup:
		return r.collect(v)
	case Undefined:
		return nil, nil
	}
	switch v.ref.(type) {
	case *rangeObject, *view:
		return r.collect(v)
	}
	return nil, typeErrorf("'%s' object is not reversible", typeName(v))
}

// sorted sorts like Python: stable, and only with <.
func (r *run) sorted(items []Value, key getterFunc, reverse bool) (Value, error) {
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
		less, err := r.order(cmpLt, a, b)
		if err != nil {
			failed = err
		}
		return less
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

func filterSort(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("sort", "reverse", "case_sensitive", "attribute")
	if err != nil {
		return v, err
	}
	reverse, err := b.flag(0)
	if err != nil {
		return v, err
	}
	fold := !b.has[1] || !r.truth(b.v[1])
	// The key is a list with one element per attribute. Lists compare equal elements without
	// ordering them, so two None are not an error.
	var gets []getterFunc
	paths, err := r.splitAttributes(b.or(2, NoneValue()))
	if err != nil {
		return v, err
	}
	for _, p := range paths {
		get, err := r.getter(p, Value{}, fold)
		if err != nil {
			return v, err
		}
		gets = append(gets, get)
	}
	key := func(x Value) (Value, error) {
		if err := r.pay(0, listBytes+valueBytes*len(gets)); err != nil {
			return x, err
		}
		out := make([]Value, len(gets))
		for i, g := range gets {
			var err error
			if out[i], err = g(x); err != nil {
				return x, err
			}
		}
		return ListValue(out...), nil
	}
	items, err := r.collect(v)
	if err != nil {
		return v, err
	}
	return r.sorted(items, key, reverse)
}

func (r *run) splitAttributes(v Value) ([]Value, error) {
	if !v.isStr() {
		return []Value{v}, nil
	}
	if err := r.payRead(len(v.s)); err != nil {
		return nil, err
	}
	list, err := r.splitAt(v, ",", -1)
	return list.Items(), err
}

func filterDictSort(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("dictsort", "case_sensitive", "by", "reverse")
	if err != nil {
		return v, err
	}
	pos := 0
	switch by := b.or(1, strOf("key")); {
	case by.isStr() && by.s == "key":
	case by.isStr() && by.s == "value":
		pos = 1
	default:
		return v, errors.New(`you can only sort by either "key" or "value"`)
	}
	m := v.Map()
	if m == nil {
		if v.kind == Undefined {
			return v, undefinedError(v)
		}
		return v, typeErrorf("'%s' object has no attribute 'items'", typeName(v))
	}
	reverse, err := b.flag(2)
	if err != nil {
		return v, err
	}
	fold := !b.has[0] || !r.truth(b.v[0])
	pairs, err := (&view{m, 'i'}).items(r)
	if err != nil {
		return v, err
	}
	return r.sorted(pairs, func(x Value) (Value, error) {
		k := x.Items()[pos]
		if fold {
			return r.folded(k)
		}
		return k, nil
	}, reverse)
}

func filterUnique(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("unique", "case_sensitive", "attribute")
	if err != nil {
		return v, err
	}
	fold := !b.has[0] || !r.truth(b.v[0])
	path := b.or(1, NoneValue())
	var get getterFunc
	var it iter
	seen := NewMap(0)
	return r.lazy(func(r *run) (Value, bool, error) {
		if get == nil {
			var err error
			if get, err = r.getter(path, Value{}, fold); err != nil {
				return Value{}, false, err
			}
			if it, err = r.iterate(v); err != nil {
				return Value{}, false, err
			}
		}
		for {
			x, ok, err := it.next(r)
			if err != nil || !ok {
				return x, false, err
			}
			k, err := get(x)
			if err != nil {
				return x, false, err
			}
			before := seen.Len()
			if err := r.put(seen, k, NoneValue()); err != nil {
				return x, false, err
			}
			if seen.Len() > before {
				return x, true, nil
			}
		}
	})
}
