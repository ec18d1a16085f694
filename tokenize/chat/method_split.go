package chat

import (
	"strings"
	"unicode/utf8"
)

// splitArgs returns the arguments of split: the separator or all white space, and the maximum number
// of splits, or -1.
func splitArgs(a args) (sep string, space bool, most int, err error) {
	b, err := a.bind("split", "sep", "maxsplit")
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

func strSplit(r *run, v Value, a args) (Value, error) {
	sep, space, most, err := splitArgs(a)
	if err != nil {
		return v, err
	}
	if err := r.payRead(len(v.s)); err != nil {
		return v, err
	}
	if !space {
		if most >= 0 {
			most++
		}
		return r.splitAt(v, sep, most)
	}
	out := listBuilder{r: r}
	s := strings.TrimLeftFunc(v.s, isSpace)
	for n := 0; s != ""; n++ {
		i := strings.IndexFunc(s, isSpace)
		if i < 0 || n == most {
			i = len(s) // the rest keeps its trailing space
		}
		if err := out.add(Value{kind: v.kind, s: s[:i]}); err != nil {
			return v, err
		}
		s = strings.TrimLeftFunc(s[i:], isSpace)
	}
	return r.list(out.items)
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

// splitLines splits at all line ends that Python knows.
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
