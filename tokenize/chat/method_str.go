package chat

import (
	"strings"
	"unicode/utf8"
)

// The methods of str count code points, as in Python.
var stringMethods = map[string]*function{
	"capitalize": fn(changeCase(capitalize)),
	"endswith":   fn(hasAffix(strings.HasSuffix), "/suffix!", "-/start", "-/end"),
	"join":       fn(strJoin, "/iterable!"),
	"lower":      fn(lowered),
	"lstrip":     fn(strip(true, false), "/chars"),
	"replace":    fn(strReplace, "/old!", "/new!", "/count"),
	"rstrip":     fn(strip(false, true), "/chars"),
	"split":      fn(strSplit, "sep", "maxsplit"),
	"startswith": fn(hasAffix(strings.HasPrefix), "/prefix!", "-/start", "-/end"),
	"strip":      fn(stripBoth, "/chars"),
	"title":      fn(changeCase(titleCase)),
	"upper":      fn(changeCase(toUpper)),
}

// sameKind returns text of the same kind as v.
func (r *run) sameKind(v Value, s string) (Value, error) {
	return Value{kind: v.kind, s: s}, r.pay(0, len(s))
}

// changeCase returns a method that changes the case of text. Unless the text is ASCII, this can
// triple its size.
func changeCase(f func(string) string) func(r *run, v Value, _ bound) (Value, error) {
	return func(r *run, v Value, _ bound) (Value, error) {
		if err := r.pay(len(v.s)>>3, len(v.s)); err != nil {
			return v, err
		}
		if !isASCII(v.s) {
			if err := r.checkMemory(3 * int64(len(v.s))); err != nil {
				return v, err
			}
		}
		return r.sameKind(v, f(v.s))
	}
}

var (
	stripBoth = strip(true, true)
	lowered   = changeCase(toLower)
)

func strip(left, right bool) func(r *run, v Value, b bound) (Value, error) {
	return func(r *run, v Value, b bound) (Value, error) {
		cut, each := isSpace, 1
		if c := b.or(0, NoneValue()); c.kind != None {
			if !c.isStr() {
				return v, typeErrorf("strip arg must be None or str")
			}
			chars := c.s
			cut = func(c rune) bool {
				r.steps -= int64(len(chars) >> 6) // each character of the text requires a search in chars
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
}

func hasAffix(has func(s, x string) bool) func(r *run, v Value, b bound) (Value, error) {
	return func(r *run, v Value, b bound) (Value, error) {
		one := [1]Value{b.at(0)}
		of := one[:]
		if b.at(0).kind == Tuple {
			of = b.at(0).Items()
		}
		for _, x := range of {
			if !x.isStr() {
				return v, typeErrorf("first arg must be str or a tuple of str, not %s", typeName(x))
			}
			if err := r.pay(1+len(x.s)>>8, 0); err != nil {
				return v, err
			}
			if has(v.s, x.s) {
				return BoolValue(true), nil
			}
		}
		return BoolValue(false), nil
	}
}

// replaceCount returns the argument named count of the str method replace, or -1 if it is missing.
func replaceCount(b bound) (int64, error) {
	c := b.or(2, IntValue(-1))
	n, ok := c.small()
	if !ok {
		return 0, unsupportedf("a count of replace that is not an int of 64 bits")
	}
	return n, nil
}

func strReplace(r *run, v Value, b bound) (Value, error) {
	if !b.at(0).isStr() || !b.at(1).isStr() {
		return v, typeErrorf("replace() arguments must be str")
	}
	n, err := replaceCount(b)
	if err != nil {
		return v, err
	}
	return r.replace(v, b.at(0).s, b.at(1).s, n)
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

func strJoin(r *run, v Value, b bound) (Value, error) {
	items, err := r.collect(b.at(0))
	if err != nil {
		return v, err
	}
	return r.join(v.s, items, func(x Value) (string, error) {
		if !x.isStr() {
			return "", typeErrorf("join: an item is %s, not str", typeName(x))
		}
		return x.s, nil
	})
}

// join converts the items to strings and joins them with a separator.
func (r *run) join(sep string, items []Value, text func(Value) (string, error)) (Value, error) {
	if err := r.pay(len(items), times(len(items), valueBytes)); err != nil {
		return Value{}, err
	}
	parts := make([]string, len(items))
	size := int64(len(sep)) * int64(max(len(parts)-1, 0))
	for i, x := range items {
		var err error
		if parts[i], err = text(x); err != nil {
			return Value{}, err
		}
		size += int64(len(parts[i]))
	}
	if err := r.checkMemory(size); err != nil {
		return Value{}, err
	}
	if err := r.pay(int(size)>>8, int(size)); err != nil {
		return Value{}, err
	}
	return strOf(strings.Join(parts, sep)), nil
}

func strSplit(r *run, v Value, b bound) (Value, error) {
	most := -1
	if b.has(1) {
		n, ok := b.at(1).small()
		if !ok {
			return v, unsupportedf("a maxsplit that is not an int of 64 bits")
		}
		if n >= 0 {
			most = int(min(n, 1<<30))
		}
	}
	sep := b.or(0, NoneValue())
	switch {
	case sep.kind != None && !sep.isStr():
		return v, typeErrorf("sep must be None or str, not %s", typeName(sep))
	case sep.isStr() && sep.s == "":
		return v, valueErrorf("empty separator")
	}
	// Often the text contains only one separator, so start with room for two parts.
	if err := r.pay(len(v.s)>>4, 2*valueBytes); err != nil {
		return v, err
	}
	out := listBuilder{r, make([]Value, 0, 2)}
	s := v.s
	space := sep.kind == None
	if space {
		s = strings.TrimLeftFunc(s, isSpace)
	}
	for n := 0; n != most; n++ {
		at := 0
		if space {
			at = strings.IndexFunc(s, isSpace)
		} else {
			at = strings.Index(s, sep.s)
		}
		if at < 0 {
			break
		}
		if err := out.add(Value{kind: v.kind, s: s[:at]}); err != nil {
			return v, err
		}
		if s = s[at+len(sep.s):]; space {
			s = strings.TrimLeftFunc(s, isSpace)
		}
	}
	if !space || s != "" { // the last part keeps its trailing space
		if err := out.add(Value{kind: v.kind, s: s}); err != nil {
			return v, err
		}
	}
	return r.list(out.items)
}

// splitLines splits at all line ends that Python recognizes.
func splitLines(s string, add func(line string) error) error {
	start := 0
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		end := false
		switch {
		case c >= 0x0a && c <= 0x0d, c >= 0x1c && c <= 0x1e, c == 0x85, c == 0x2028, c == 0x2029:
			end = true
		}
		if !end {
			i += n
			continue
		}
		next := i + n
		if c == '\r' && next < len(s) && s[next] == '\n' {
			next++
		}
		if err := add(s[start:i]); err != nil {
			return err
		}
		i, start = next, next
	}
	if start < len(s) {
		return add(s[start:])
	}
	return nil
}
