package chat

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// splitArgs returns the arguments of split and rsplit: the separator or all white space, and the
// maximum number of splits, or -1.
func splitArgs(name string, a args) (sep string, space bool, most int, err error) {
	b, err := a.bind(name, "sep", "maxsplit")
	if err != nil {
		return "", false, 0, err
	}
	most = -1
	if b.has[1] {
		n, ok := b.v[1].small()
		if !ok {
			return "", false, 0, typeErrorf("maxsplit must be an int")
		}
		if n >= 0 {
			most = int(min(n, 1<<40))
		}
	}
	s := b.or(0, NoneValue())
	switch {
	case s.kind == None:
		return "", true, most, nil
	case !s.isStr():
		return "", false, 0, typeErrorf("sep must be None or str, not %s", typeName(s))
	case s.s == "":
		return "", false, 0, valueErrorf("empty separator")
	}
	return s.s, false, most, nil
}

// split collects the parts that cut yields.
func (r *run) split(v Value, cut func(add func(part string) error) error) (Value, error) {
	out := listBuilder{r: r}
	err := cut(func(part string) error { return out.add(Value{kind: v.kind, s: part}) })
	if err != nil {
		return v, err
	}
	return r.list(out.items)
}

func strSplit(r *run, v Value, a args) (Value, error) {
	sep, space, most, err := splitArgs("split", a)
	if err != nil {
		return v, err
	}
	if err := r.read(len(v.s)); err != nil {
		return v, err
	}
	if !space {
		if most >= 0 {
			most++
		}
		return r.splitAt(v, sep, most)
	}
	return r.split(v, func(add func(string) error) error {
		s := strings.TrimLeftFunc(v.s, isSpace)
		for n := 0; s != "" && (most < 0 || n < most); n++ {
			i := strings.IndexFunc(s, isSpace)
			if i < 0 {
				break
			}
			if err := add(s[:i]); err != nil {
				return err
			}
			s = strings.TrimLeftFunc(s[i:], isSpace)
		}
		if s == "" {
			return nil
		}
		return add(s) // the rest keeps its trailing space
	})
}

// splitAt splits v at sep. most is the maximum number of parts; negative means no limit.
func (r *run) splitAt(v Value, sep string, most int) (Value, error) {
	if err := r.pay(0, 2*valueBytes); err != nil {
		return v, err
	}
	out := listBuilder{r, make([]Value, 0, 2)} // often there is one separator
	s := v.s
	for n := 0; most < 0 || n < most-1; n++ {
		at := strings.Index(s, sep)
		if at < 0 {
			break
		}
		if err := out.add(Value{kind: v.kind, s: s[:at]}); err != nil {
			return v, err
		}
		s = s[at+len(sep):]
	}
	if err := out.add(Value{kind: v.kind, s: s}); err != nil {
		return v, err
	}
	return r.list(out.items)
}

func strRSplit(r *run, v Value, a args) (Value, error) {
	sep, space, most, err := splitArgs("rsplit", a)
	if err != nil {
		return v, err
	}
	if err := r.read(len(v.s)); err != nil {
		return v, err
	}
	list, err := r.split(v, func(add func(string) error) error {
		s := v.s
		if space {
			s = strings.TrimRightFunc(s, isSpace)
		}
		for n := 0; most < 0 || n < most; n++ {
			at, size := strings.LastIndex(s, sep), len(sep)
			if space {
				if at = strings.LastIndexFunc(s, isSpace); at >= 0 {
					size = runeLen(s[at:])
				}
			}
			if at < 0 {
				break
			}
			if err := add(s[at+size:]); err != nil {
				return err
			}
			s = s[:at]
			if space {
				s = strings.TrimRightFunc(s, isSpace)
			}
		}
		if s == "" && space {
			return nil
		}
		return add(s)
	})
	slices.Reverse(list.Items())
	return list, err
}

func strSplitLines(r *run, v Value, a args) (Value, error) {
	b, err := a.bind("splitlines", "keepends")
	if err != nil {
		return v, err
	}
	keep, err := b.flag(0)
	if err != nil {
		return v, err
	}
	if err := r.read(len(v.s)); err != nil {
		return v, err
	}
	return r.split(v, func(add func(string) error) error { return splitLines(v.s, keep, add) })
}

// splitLines splits at all line ends that Python knows.
func splitLines(s string, keep bool, add func(line string) error) error {
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
		line := s[start:i]
		if keep {
			line = s[start:next]
		}
		if err := add(line); err != nil {
			return err
		}
		i, start = next, next
	}
	if start < len(s) {
		return add(s[start:])
	}
	return nil
}

func (r *run) partition(name string, v Value, a args) (Value, error) {
	sep, err := textArg(name, a)
	if err != nil {
		return v, err
	}
	if sep.s == "" {
		return v, valueErrorf("empty separator")
	}
	if err := r.pay(len(v.s)>>5, listBytes+3*valueBytes); err != nil {
		return v, err
	}
	part := func(s string) Value { return Value{kind: v.kind, s: s} }
	i := strings.Index(v.s, sep.s)
	if name == "rpartition" {
		if i = strings.LastIndex(v.s, sep.s); i < 0 {
			return tupleOf(part(""), part(""), v), nil
		}
	}
	if i < 0 {
		return tupleOf(v, part(""), part("")), nil
	}
	return tupleOf(part(v.s[:i]), part(sep.s), part(v.s[i+len(sep.s):])), nil
}
