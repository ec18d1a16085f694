package chat

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// jsonStyle holds the arguments of json.dumps that a template can set.
type jsonStyle struct {
	ascii    bool
	indent   string
	pretty   bool
	itemSep  string
	keySep   string
	sortKeys bool
}

// filterToJSON implements Hugging Face's tojson: json.dumps with ensure_ascii off and without HTML
// escapes.
func filterToJSON(r *run, v Value, b bound) (Value, error) {
	st := jsonStyle{ascii: truth(b.at(0)), itemSep: ", ", keySep: ": ", sortKeys: truth(b.at(3))}
	if in := b.or(1, NoneValue()); in.kind != None {
		n, ok := in.small()
		if !ok || n > 1<<16 {
			return v, unsupportedf("an indent of tojson that is not a small int")
		}
		st.pretty, st.indent, st.itemSep = true, strings.Repeat(" ", int(max(n, 0))), ","
	}
	if sep := b.or(2, NoneValue()); sep.kind != None {
		parts := sep.Items()
		if len(parts) != 2 || parts[0].kind != String || parts[1].kind != String {
			return v, unsupportedf("separators of tojson that are not a pair of str values")
		}
		st.itemSep, st.keySep = parts[0].s, parts[1].s
	}
	m := v.Map()
	if m != nil {
		// If the cached text exceeds this template's limit, build it again to get the error.
		if p := m.printed.Load(); p != nil && p.style == st && len(r.out)+len(p.text)-r.base <= r.t.opts.MaxOutputBytes {
			return r.str(p.text)
		}
	}
	s, err := r.buildText(func(dst []byte) ([]byte, error) { return r.appendJSON(dst, v, &st, 0) })
	if err != nil {
		return v, err
	}
	if m != nil {
		m.printed.Store(&printed{st, s})
	}
	return strOf(s), nil
}

func (r *run) appendJSON(dst []byte, v Value, st *jsonStyle, depth int) ([]byte, error) {
	if err := r.walk(dst, depth); err != nil {
		return dst, err
	}
	switch v.kind {
	case None:
		return append(dst, "null"...), nil
	case Bool:
		if v.n != 0 {
			return append(dst, "true"...), nil
		}
		return append(dst, "false"...), nil
	case Int:
		return appendInt(dst, v), nil
	case Float:
		return appendJSONFloat(dst, v.float()), nil
	case String, Markup:
		if err := r.jsonText(dst, v.s); err != nil {
			return dst, err
		}
		return appendJSONString(dst, v.s, st.ascii), nil
	case List, Tuple:
		items := v.Items()
		if len(items) == 0 {
			return append(dst, "[]"...), nil
		}
		dst = append(dst, '[')
		for i, x := range items {
			var err error
			if dst, err = r.newItem(dst, st, i, depth+1); err != nil {
				return dst, err
			}
			if dst, err = r.appendJSON(dst, x, st, depth+1); err != nil {
				return dst, err
			}
		}
		return append(st.newline(dst, depth), ']'), nil
	case Dict:
		return r.appendJSONDict(dst, v.Map(), st, depth)
	}
	return dst, typeErrorf("object of type %s is not JSON serializable", typeName(v))
}

func (st *jsonStyle) newline(dst []byte, depth int) []byte {
	if !st.pretty {
		return dst
	}
	dst = append(dst, '\n')
	for range depth {
		dst = append(dst, st.indent...)
	}
	return dst
}

func (r *run) appendJSONDict(dst []byte, m *Map, st *jsonStyle, depth int) ([]byte, error) {
	if m.Len() == 0 {
		return append(dst, "{}"...), nil
	}
	at := m.At
	if st.sortKeys {
		sorted, err := r.sortedPairs(m, 0, false, false)
		if err != nil {
			return dst, err
		}
		at = func(i int) (key, value Value) { pair := sorted.Items()[i].Items(); return pair[0], pair[1] }
	}
	dst = append(dst, '{')
	for i := range m.keys {
		var err error
		if dst, err = r.newItem(dst, st, i, depth+1); err != nil {
			return dst, err
		}
		k, v := at(i)
		if dst, err = r.appendJSONKey(dst, k, st.ascii); err != nil {
			return dst, err
		}
		dst = append(dst, st.keySep...)
		if dst, err = r.appendJSON(dst, v, st, depth+1); err != nil {
			return dst, err
		}
	}
	return append(st.newline(dst, depth), '}'), nil
}

// newItem appends the separator and line break before element i.
func (r *run) newItem(dst []byte, st *jsonStyle, i, depth int) ([]byte, error) {
	size := len(st.itemSep) + len(st.keySep) + 1
	if st.pretty {
		size += (depth + 1) * len(st.indent)
	}
	err := r.checkSize(dst, size)
	if err == nil {
		err = r.pay(size>>6, 0)
	}
	if err != nil {
		return dst, err
	}
	if i > 0 {
		dst = append(dst, st.itemSep...)
	}
	return st.newline(dst, depth), nil
}

// jsonText checks the size of a string and pays for reading it.
func (r *run) jsonText(dst []byte, s string) error {
	if err := r.checkSize(dst, len(s)); err != nil {
		return err
	}
	return r.payRead(len(s))
}

func (r *run) appendJSONKey(dst []byte, k Value, ascii bool) ([]byte, error) {
	switch k.kind {
	case String, Markup:
		if err := r.jsonText(dst, k.s); err != nil {
			return dst, err
		}
		return appendJSONString(dst, k.s, ascii), nil
	case None:
		return append(dst, `"null"`...), nil
	case Bool:
		if k.n != 0 {
			return append(dst, `"true"`...), nil
		}
		return append(dst, `"false"`...), nil
	case Int:
		return append(appendInt(append(dst, '"'), k), '"'), nil
	case Float:
		return append(appendJSONFloat(append(dst, '"'), k.float()), '"'), nil
	}
	return dst, typeErrorf("keys must be str, int, float, bool or None, not %s", typeName(k))
}

func appendJSONFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	return appendFloat(dst, f)
}

// plainEnd returns the index of the next byte at or after s[i] that must be escaped in a JSON
// string. If ascii is true, DEL and non-ASCII characters are escaped too, as with Python's
// ensure_ascii.
func plainEnd(s string, i int, ascii bool) int {
	if !ascii {
		return strictjson.PlainEnd(s, i)
	}
	for i < len(s) && s[i] >= ' ' && s[i] < 0x7f && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}

func appendJSONString(dst []byte, s string, ascii bool) []byte {
	dst = append(dst, '"')
	start := 0
	for i := plainEnd(s, 0, ascii); i < len(s); i = plainEnd(s, start, ascii) {
		dst = append(dst, s[start:i]...)
		n := 1
		switch c := s[i]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		default:
			var ch rune
			ch, n = utf8.DecodeRuneInString(s[i:])
			if ch >= 0x10000 {
				ch -= 0x10000
				dst = appendHex(dst, `\u`, 0xd800+ch>>10, 4)
				ch = 0xdc00 + ch&0x3ff
			}
			dst = appendHex(dst, `\u`, ch, 4)
		}
		start = i + n
	}
	return append(append(dst, s[start:]...), '"')
}
