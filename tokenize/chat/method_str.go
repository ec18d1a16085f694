package chat

import (
	"strings"
	"unicode/utf8"
)

// stringMethod returns the str method of that name, or nil. Methods count code points, like Python.
// On Markup, a method returns Markup and escapes its arguments.
func stringMethod(name string) methodFunc {
	switch name {
	case "strip", "lstrip", "rstrip":
		left, right := name != "rstrip", name != "lstrip"
		return func(r *run, v Value, a args) (Value, error) { return r.strip(name, v, a, left, right) }
	case "split":
		return strSplit
	case "startswith":
		return func(r *run, v Value, a args) (Value, error) { return r.hasAffix(name, v, a, strings.HasPrefix) }
	case "endswith":
		return func(r *run, v Value, a args) (Value, error) { return r.hasAffix(name, v, a, strings.HasSuffix) }
	case "replace":
		return strReplace
	case "join":
		return strJoin
	}
	if f := caseMethod(name); f != nil {
		return func(r *run, v Value, a args) (Value, error) {
			if err := a.only(name, 0, 0); err != nil {
				return v, err
			}
			if err := r.payCase(v.s); err != nil {
				return v, err
			}
			return r.sameKind(v, f(v.s))
		}
	}
	return nil
}

// sameKind returns text of the same kind as v.
func (r *run) sameKind(v Value, s string) (Value, error) {
	return Value{kind: v.kind, s: s}, r.pay(0, len(s))
}

// payCase pays for changing the case of a text, which can triple its size.
func (r *run) payCase(s string) error {
	if err := r.pay(len(s)>>3, len(s)); err != nil || isASCII(s) {
		return err
	}
	return r.checkMemory(3 * int64(len(s)))
}

func caseMethod(name string) func(string) string {
	switch name {
	case "lower":
		return toLower
	case "upper":
		return toUpper
	case "capitalize":
		return capitalize
	case "title":
		return titleCase
	}
	return nil
}

func (r *run) strip(name string, v Value, a args, left, right bool) (Value, error) {
	// The methods of Markup are written in Python, so chars is also a keyword.
	if v.kind == Markup && len(a.kw) == 1 && len(a.pos) == 0 {
		return v, typeErrorf("%s takes no keyword arguments", name)
	}
	if err := a.only(name, 0, 1); err != nil {
		return v, err
	}
	cut, each := isSpace, 1
	if len(a.pos) == 1 && a.pos[0].kind != None {
		if !a.pos[0].isStr() {
			return v, typeErrorf("%s arg must be None or str", name)
		}
		chars := a.pos[0].s
		cut = func(c rune) bool {
			r.steps -= int64(len(chars) >> 6) // each character searches all of chars
			return r.steps >= 0 && strings.ContainsRune(chars, c)
		}
		each = 1 + min(len(chars), 64)>>4
	}
	s := v.s
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return Value{kind: v.kind, s: s}, r.pay(1+(len(v.s)-len(s))*each>>4, 0)
}

// window returns the part of s between optional start and end.
func (r *run) window(s string, a []Value) (sub string, ok bool, err error) {
	if err := r.payScan(len(s)); err != nil {
		return "", false, err
	}
	n := utf8.RuneCountInString(s)
	from, to := a[0], NoneValue()
	if len(a) > 1 {
		to = a[1]
	}
	if from.kind != None {
		if i, err := sliceIndex(from); err != nil {
			return "", false, err
		} else if i > int64(n) {
			return "", false, nil
		}
	}
	i, j, _, err := bounds(n, from, to, NoneValue())
	if err != nil || j < i {
		return "", false, err
	}
	x := byteOffset(s, i)
	return s[x : x+byteOffset(s[x:], j-i)], true, nil
}

func (r *run) hasAffix(name string, v Value, a args, has func(s, x string) bool) (Value, error) {
	if err := a.only(name, 1, 3); err != nil {
		return v, err
	}
	s, ok := v.s, true
	if len(a.pos) > 1 {
		var err error
		if s, ok, err = r.window(s, a.pos[1:]); err != nil {
			return v, err
		}
	}
	if x := a.pos[0]; x.isStr() {
		return BoolValue(ok && has(s, x.s)), r.pay(len(x.s)>>8, 0)
	} else if x.kind != Tuple {
		return v, typeErrorf("%s first arg must be str or a tuple of str, not %s", name, typeName(x))
	}
	for _, x := range a.pos[0].Items() {
		if !x.isStr() {
			return v, typeErrorf("tuple for %s must only contain str, not %s", name, typeName(x))
		}
		if err := r.pay(1+len(x.s)>>8, 0); err != nil {
			return v, err
		}
		if ok && has(s, x.s) {
			return BoolValue(true), nil
		}
	}
	return BoolValue(false), nil
}

func strReplace(r *run, v Value, a args) (Value, error) {
	if err := a.only("replace", 2, 3); err != nil {
		return v, err
	}
	if !a.pos[0].isStr() || (!a.pos[1].isStr() && v.kind != Markup) {
		return v, typeErrorf("replace() arguments must be str")
	}
	n := int64(-1)
	if len(a.pos) == 3 {
		var ok bool
		if n, ok = a.pos[2].small(); !ok {
			return v, typeErrorf("replace() count must be an int")
		}
	}
	with := a.pos[1]
	if v.kind == Markup {
		x, err := r.text(with)
		if err != nil {
			return v, err
		}
		if with.kind != Markup {
			if x, err = r.escape(x); err != nil {
				return v, err
			}
		}
		with = markupOf(x)
	}
	return r.replace(v, a.pos[0].s, with.s, n)
}

func (r *run) replace(v Value, old, with string, n int64) (Value, error) {
	if err := r.payScan(len(v.s)); err != nil {
		return v, err
	}
	hits := strings.Count(v.s, old)
	if n >= 0 {
		hits = int(min(int64(hits), n))
	}
	if hits == 0 {
		return v, nil
	}
	size := int64(len(v.s)) + int64(hits)*int64(len(with)-len(old))
	if err := r.checkMemory(size); err != nil {
		return v, err
	}
	if err := r.pay(hits>>1+int(size)>>8, int(size)); err != nil {
		return v, err
	}
	return Value{kind: v.kind, s: strings.Replace(v.s, old, with, hits)}, nil
}

func strJoin(r *run, v Value, a args) (Value, error) {
	if err := a.only("join", 1, 1); err != nil {
		return v, err
	}
	items, err := r.collect(a.pos[0])
	if err != nil {
		return v, err
	}
	if err := r.pay(len(items), times(len(items), valueBytes)); err != nil {
		return v, err
	}
	parts := make([]string, len(items))
	for i, x := range items {
		switch {
		case v.kind == Markup && x.kind != Markup:
			s, err := r.text(x)
			if err == nil {
				parts[i], err = r.escape(s)
			}
			if err != nil {
				return v, err
			}
		case x.isStr():
			parts[i] = x.s
		default:
			return v, typeErrorf("join: item %d is %s, not str", i, typeName(x))
		}
	}
	return r.joined(v, parts)
}

// joined joins parts with separator v.
func (r *run) joined(v Value, parts []string) (Value, error) {
	size := int64(len(v.s)) * int64(max(len(parts)-1, 0))
	for _, p := range parts {
		size += int64(len(p))
	}
	if err := r.checkMemory(size); err != nil {
		return v, err
	}
	if err := r.pay(int(size)>>8, int(size)); err != nil {
		return v, err
	}
	return Value{kind: v.kind, s: strings.Join(parts, v.s)}, nil
}
