package chat

import (
	"math"
	"strings"
	"unicode"
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
	case "rsplit":
		return strRSplit
	case "splitlines":
		return strSplitLines
	case "startswith":
		return func(r *run, v Value, a args) (Value, error) { return r.affix(name, v, a, strings.HasPrefix) }
	case "endswith":
		return func(r *run, v Value, a args) (Value, error) { return r.affix(name, v, a, strings.HasSuffix) }
	case "replace":
		return strReplace
	case "join":
		return strJoin
	case "format":
		return strFormat
	case "format_map":
		return strFormatMap
	case "removeprefix":
		return textMethod(name, func(s, arg string) string { return strings.TrimPrefix(s, arg) })
	case "removesuffix":
		return textMethod(name, func(s, arg string) string { return strings.TrimSuffix(s, arg) })
	case "find", "rfind", "index", "rindex":
		return func(r *run, v Value, a args) (Value, error) { return r.findText(name, v, a) }
	case "count":
		return strCount
	case "partition", "rpartition":
		return func(r *run, v Value, a args) (Value, error) { return r.partition(name, v, a) }
	case "ljust", "rjust", "center":
		return func(r *run, v Value, a args) (Value, error) { return r.justify(name, v, a) }
	case "zfill":
		return strZFill
	case "expandtabs":
		return strExpandTabs
	case "encode", "maketrans", "translate":
		return func(_ *run, v Value, _ args) (Value, error) {
			return v, typeErrorf("%w: method '%s' of str", ErrUnsupported, name)
		}
	}
	if f := caseMethod(name); f != nil {
		return func(r *run, v Value, a args) (Value, error) {
			if err := a.only(name, 0, 0); err != nil {
				return v, err
			}
			if err := r.casing(v.s); err != nil {
				return v, err
			}
			return r.like(v, f(v.s))
		}
	}
	if f := stringPredicate(name); f != nil {
		return func(r *run, v Value, a args) (Value, error) {
			if err := r.read(len(v.s)); err != nil {
				return v, err
			}
			return BoolValue(f(v.s)), a.only(name, 0, 0)
		}
	}
	return nil
}

// like returns text of the same kind as v.
func (r *run) like(v Value, s string) (Value, error) {
	return Value{kind: v.kind, s: s}, r.pay(0, len(s))
}

// casing pays for changing the case of a text, which can triple its size.
func (r *run) casing(s string) error {
	if err := r.pay(len(s)>>3, len(s)); err != nil || isASCII(s) {
		return err
	}
	return r.room(3 * int64(len(s)))
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
	case "swapcase":
		return swapCase
	case "casefold":
		return caseFold
	}
	return nil
}

func textArg(what string, a args) (Value, error) {
	if err := a.only(what, 1, 1); err != nil {
		return Value{}, err
	}
	if !a.pos[0].isStr() {
		return Value{}, typeErrorf("%s takes a str, not %s", what, typeName(a.pos[0]))
	}
	return a.pos[0], nil
}

func textMethod(name string, f func(s, arg string) string) methodFunc {
	return func(r *run, v Value, a args) (Value, error) {
		arg, err := textArg(name, a)
		if err != nil {
			return v, err
		}
		return r.like(v, f(v.s, arg.s))
	}
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
func (r *run) window(s string, a []Value) (sub string, offset int, ok bool, err error) {
	if len(a) == 0 {
		return s, 0, true, nil
	}
	if err := r.scan(len(s)); err != nil {
		return "", 0, false, err
	}
	n := utf8.RuneCountInString(s)
	from, to := a[0], NoneValue()
	if len(a) > 1 {
		to = a[1]
	}
	if from.kind != None {
		if i, err := sliceIndex(from); err != nil {
			return "", 0, false, err
		} else if i > int64(n) {
			return "", 0, false, nil
		}
	}
	i, j, _, err := bounds(n, from, to, NoneValue())
	if err != nil || j < i {
		return "", 0, false, err
	}
	x := byteOffset(s, i)
	return s[x : x+byteOffset(s[x:], j-i)], i, true, nil
}

func (r *run) affix(name string, v Value, a args, has func(s, x string) bool) (Value, error) {
	if err := a.only(name, 1, 3); err != nil {
		return v, err
	}
	s, ok := v.s, true
	if len(a.pos) > 1 {
		var err error
		if s, _, ok, err = r.window(s, a.pos[1:]); err != nil {
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
	if err := r.scan(len(v.s)); err != nil {
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
	if err := r.room(size); err != nil {
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
	if err := r.room(size); err != nil {
		return v, err
	}
	if err := r.pay(int(size)>>8, int(size)); err != nil {
		return v, err
	}
	return Value{kind: v.kind, s: strings.Join(parts, v.s)}, nil
}

func (r *run) findText(name string, v Value, a args) (Value, error) {
	if err := a.only(name, 1, 3); err != nil {
		return v, err
	}
	if !a.pos[0].isStr() {
		return v, typeErrorf("%s: must be str, not %s", name, typeName(a.pos[0]))
	}
	s, offset, ok, err := r.window(v.s, a.pos[1:])
	if err == nil {
		err = r.scan(len(s))
	}
	if err != nil {
		return v, err
	}
	i := -1
	if ok {
		if name[0] == 'r' {
			i = strings.LastIndex(s, a.pos[0].s)
		} else {
			i = strings.Index(s, a.pos[0].s)
		}
	}
	if i < 0 {
		if strings.HasSuffix(name, "index") {
			return v, valueErrorf("substring not found")
		}
		return IntValue(-1), nil
	}
	return IntValue(int64(offset + utf8.RuneCountInString(s[:i]))), nil
}

func strCount(r *run, v Value, a args) (Value, error) {
	if err := a.only("count", 1, 3); err != nil {
		return v, err
	}
	if !a.pos[0].isStr() {
		return v, typeErrorf("count: must be str, not %s", typeName(a.pos[0]))
	}
	s, _, ok, err := r.window(v.s, a.pos[1:])
	if err == nil {
		err = r.scan(len(s))
	}
	if err != nil || !ok {
		return IntValue(0), err
	}
	return IntValue(int64(strings.Count(s, a.pos[0].s))), nil
}

func (r *run) justify(name string, v Value, a args) (Value, error) {
	if err := a.only(name, 1, 2); err != nil {
		return v, err
	}
	width, ok := a.pos[0].small()
	if !ok {
		return v, typeErrorf("%s: width must be an int", name)
	}
	fill := " "
	if len(a.pos) == 2 {
		x := a.pos[1]
		if v.kind == Markup && x.kind != Markup { // Markup accepts any value and escapes its text
			s, err := r.text(x)
			if err == nil {
				s, err = r.escape(s)
			}
			if err != nil {
				return v, err
			}
			x = strOf(s)
		}
		if !x.isStr() || utf8.RuneCountInString(x.s) != 1 {
			return v, typeErrorf("the fill character must be exactly one character long")
		}
		fill = x.s
	}
	n, err := r.length(v)
	if err != nil {
		return v, err
	}
	pad := width - int64(n)
	if pad <= 0 {
		return v, nil
	}
	if err := r.padding(v, pad, len(fill)); err != nil {
		return v, err
	}
	left := int64(0)
	switch name {
	case "rjust":
		left = pad
	case "center":
		left = pad/2 + pad&width&1
	}
	return Value{kind: v.kind, s: strings.Repeat(fill, int(left)) + v.s + strings.Repeat(fill, int(pad-left))}, nil
}

// padding pays for adding pad characters of that size to v, which takes two copies.
func (r *run) padding(v Value, pad int64, size int) error {
	if err := r.room(pad); err != nil {
		return err
	}
	if err := r.room(pad * int64(size)); err != nil {
		return err
	}
	n := pad*int64(size) + int64(len(v.s))
	return r.pay(int(n>>8), int(min(2*n, math.MaxInt)))
}

func strZFill(r *run, v Value, a args) (Value, error) {
	if err := a.only("zfill", 1, 1); err != nil {
		return v, err
	}
	width, ok := a.pos[0].small()
	if !ok {
		return v, typeErrorf("zfill: width must be an int")
	}
	n, err := r.length(v)
	if err != nil {
		return v, err
	}
	pad := width - int64(n)
	if pad <= 0 {
		return v, nil
	}
	if err := r.padding(v, pad, 1); err != nil {
		return v, err
	}
	sign := ""
	rest := v.s
	if rest != "" && (rest[0] == '+' || rest[0] == '-') {
		sign, rest = rest[:1], rest[1:]
	}
	return Value{kind: v.kind, s: sign + strings.Repeat("0", int(pad)) + rest}, nil
}

func strExpandTabs(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("expandtabs", "tabsize")
	if err != nil {
		return v, err
	}
	size, ok := b.or(0, IntValue(8)).small()
	if !ok {
		return v, typeErrorf("expandtabs: tabsize must be an int")
	}
	if size > 1<<16 {
		return v, limitErrorf("tabs of more than %d", 1<<16)
	}
	if err := r.make(times(len(v.s), 2)); err != nil {
		return v, err
	}
	var out strings.Builder
	col := int64(0)
	for _, c := range v.s {
		switch c {
		case '\t':
			if size > 0 {
				n := size - col%size
				if err := r.pay(1+int(n)>>8, 3*int(n)); err != nil {
					return v, err
				}
				out.WriteString(strings.Repeat(" ", int(n)))
				col += n
			}
		case '\n', '\r':
			out.WriteRune(c)
			col = 0
		default:
			out.WriteRune(c)
			col++
		}
	}
	return r.like(v, out.String())
}

func stringPredicate(name string) func(string) bool {
	every := func(f func(rune) bool) func(string) bool {
		return func(s string) bool { return s != "" && strings.IndexFunc(s, func(c rune) bool { return !f(c) }) < 0 }
	}
	switch name {
	case "isspace":
		return every(isSpace)
	case "isalpha":
		return every(unicode.IsLetter)
	case "isdecimal":
		return every(func(c rune) bool { return unicode.Is(unicode.Nd, c) })
	case "isdigit":
		return every(isDigitRune)
	case "isnumeric":
		return every(isNumericRune)
	case "isalnum":
		return every(func(c rune) bool { return unicode.IsLetter(c) || isNumericRune(c) })
	case "isascii":
		return isASCII
	case "isprintable":
		return func(s string) bool { return strings.IndexFunc(s, func(c rune) bool { return !isPrintable(c) }) < 0 }
	case "islower":
		return func(s string) bool { return oneCase(s, isLowerRune, isUpperRune) }
	case "isupper":
		return func(s string) bool { return oneCase(s, isUpperRune, isLowerRune) }
	case "istitle":
		return isTitle
	case "isidentifier":
		return func(s string) bool {
			for i, c := range s {
				if !startsIdentifier(c) && (i == 0 || !continuesIdentifier(c)) {
					return false
				}
			}
			return s != ""
		}
	}
	return nil
}

func oneCase(s string, want, not func(rune) bool) bool {
	found := false
	for _, c := range s {
		if not(c) || unicode.IsTitle(c) {
			return false
		}
		found = found || want(c)
	}
	return found
}

func isTitle(s string) bool {
	cased, found := false, false
	for _, c := range s {
		switch {
		case isUpperRune(c) || unicode.IsTitle(c):
			if cased {
				return false
			}
			cased, found = true, true
		case isLowerRune(c):
			if !cased {
				return false
			}
			cased, found = true, true
		default:
			cased = false
		}
	}
	return found
}

func isLowerRune(c rune) bool { return unicode.IsLower(c) || unicode.Is(unicode.Other_Lowercase, c) }

func isUpperRune(c rune) bool { return unicode.IsUpper(c) || unicode.Is(unicode.Other_Uppercase, c) }
