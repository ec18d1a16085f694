package chat

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

func (r *run) appendStr(dst []byte, v Value) ([]byte, error) {
	switch v.kind {
	case String, Markup:
		if e := r.enum(v); e != nil {
			return append(dst, e.name...), nil
		}
		if err := r.checkSize(dst, len(v.s)); err != nil {
			return dst, err
		}
		return append(dst, v.s...), nil
	case Undefined:
		return dst, nil
	}
	return r.appendRepr(dst, v, 0)
}

func (r *run) text(v Value) (string, error) {
	if v.isStr() {
		if e := r.enum(v); e != nil {
			return e.name, nil
		}
		return v.s, nil
	}
	return r.buildText(func(dst []byte) ([]byte, error) { return r.appendStr(dst, v) })
}

// buildText returns the text that f appends. To avoid an extra buffer, f appends to r.out, and
// buildText then removes the text from r.out.
func (r *run) buildText(f func(dst []byte) ([]byte, error)) (string, error) {
	start := len(r.out)
	out, err := f(r.out)
	if err != nil {
		return "", err
	}
	if err := r.pay(0, len(out)-start); err != nil {
		return "", err
	}
	s := string(out[start:])
	r.out = out[:start]
	return s, nil
}

func (r *run) appendRepr(dst []byte, v Value, depth int) ([]byte, error) {
	if err := r.walk(dst, depth); err != nil {
		return dst, err
	}
	switch v.kind {
	case None:
		return append(dst, "None"...), nil
	case Undefined:
		return append(dst, "Undefined"...), nil
	case Bool:
		if v.n != 0 {
			return append(dst, "True"...), nil
		}
		return append(dst, "False"...), nil
	case Int:
		return appendInt(dst, v), nil
	case Float:
		return appendFloat(dst, v.float()), nil
	case String, Markup:
		if err := r.checkSize(dst, len(v.s)); err != nil {
			return dst, err
		}
		if err := r.payRead(len(v.s)); err != nil {
			return dst, err
		}
		if e := r.enum(v); e != nil {
			return append(appendQuoted(append(append(append(dst, '<'), e.name...), ": "...), v.s), '>'), nil
		}
		if v.kind == String {
			return appendQuoted(dst, v.s), nil
		}
		return append(appendQuoted(append(dst, "Markup("...), v.s), ')'), nil
	case List:
		return r.appendItems(dst, v.Items(), "[", "]", depth)
	case Tuple:
		if len(v.Items()) == 1 {
			return r.appendItems(dst, v.Items(), "(", ",)", depth)
		}
		return r.appendItems(dst, v.Items(), "(", ")", depth)
	case Dict:
		return r.appendDict(dst, v.Map(), depth)
	}
	// In Python, this text usually contains the address of the object.
	return dst, unsupportedf("the string form of '%s'", typeName(v))
}

// walk pays for converting one value to text, and checks the limits on depth and size.
func (r *run) walk(dst []byte, depth int) error {
	if err := r.checkSize(dst, 0); err != nil {
		return err
	}
	return r.visit(1, depth)
}

func (r *run) appendItems(dst []byte, items []Value, open, end string, depth int) ([]byte, error) {
	dst = append(dst, open...)
	var err error
	for i, x := range items {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if dst, err = r.appendRepr(dst, x, depth+1); err != nil {
			return dst, err
		}
	}
	return append(dst, end...), nil
}

func (r *run) appendDict(dst []byte, m *Map, depth int) ([]byte, error) {
	dst = append(dst, '{')
	var err error
	for i := range m.keys {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if dst, err = r.appendRepr(dst, m.keys[i], depth+1); err != nil {
			return dst, err
		}
		dst = append(dst, ": "...)
		if dst, err = r.appendRepr(dst, m.vals[i], depth+1); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func appendInt(dst []byte, v Value) []byte {
	if v.s != "" {
		return append(dst, v.s...)
	}
	return strconv.AppendInt(dst, v.n, 10)
}

// appendFloat appends Python's repr(f): the shortest digits that identify f, in scientific notation
// below 1e-4 and from 1e16 on.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if slices.Contains(dst[start:], '.') {
		return dst
	}
	return append(dst, ".0"...)
}

// quote is the equivalent of Python's repr for a string.
func quote(s string) string { return string(appendQuoted(nil, s)) }

func appendQuoted(dst []byte, s string) []byte {
	q := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		q = '"'
	}
	dst = append(dst, q)
	for _, c := range s {
		switch {
		case c == rune(q) || c == '\\':
			dst = append(dst, '\\', byte(c))
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c >= ' ' && c < 0x7f:
			dst = append(dst, byte(c))
		case isPrintable(c):
			dst = utf8.AppendRune(dst, c)
		case c < 0x100:
			dst = appendHex(dst, `\x`, c, 2)
		case c < 0x10000:
			dst = appendHex(dst, `\u`, c, 4)
		default:
			dst = appendHex(dst, `\U`, c, 8)
		}
	}
	return append(dst, q)
}

func appendHex(dst []byte, mark string, c rune, digits int) []byte {
	dst = append(dst, mark...)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		dst = append(dst, "0123456789abcdef"[c>>shift&15])
	}
	return dst
}

// isPrintable is the equivalent of Python's str.isprintable for one character.
func isPrintable(c rune) bool { return c == ' ' || unicode.IsPrint(c) }

// isSpace is the equivalent of Python's str.isspace for one character. \s in Python's regular
// expressions matches the same characters.
func isSpace(c rune) bool {
	switch {
	case c >= 0x09 && c <= 0x0d, c >= 0x1c && c <= 0x20, c == 0x85, c == 0xa0:
		return true
	case c < 0x1680:
		return false
	}
	return c == 0x1680 || c >= 0x2000 && c <= 0x200a || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000
}

func runeLen(s string) int {
	if s[0] < utf8.RuneSelf {
		return 1
	}
	_, n := utf8.DecodeRuneInString(s)
	return n
}

var htmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

// escape is the equivalent of markupsafe.escape. It escapes a str and returns Markup unchanged.
func (r *run) escape(v Value) (string, error) {
	err := r.payRead(len(v.s))
	if err != nil || v.kind == Markup {
		return v.s, err
	}
	size := len(v.s)
	for i := range len(v.s) {
		switch v.s[i] {
		case '&', '\'', '"':
			size += len("&#39;") - 1
		case '<', '>':
			size += len("&lt;") - 1
		}
	}
	if size == len(v.s) {
		return v.s, nil
	}
	if err := r.pay(size>>4, size); err != nil {
		return "", err
	}
	return htmlEscapes.Replace(v.s), nil
}

// isASCII reports whether s contains only ASCII characters.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// byteOffset returns the byte offset of character n, 0 ≤ n ≤ number of characters.
func byteOffset(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// length is the equivalent of Python's len(v).
func (r *run) length(v Value) (int, error) {
	switch v.kind {
	case Undefined:
		return 0, nil
	case String, Markup:
		return utf8.RuneCountInString(v.s), r.pay(len(v.s)>>6, 0)
	case List, Tuple:
		return len(v.Items()), nil
	case Dict:
		return v.Map().Len(), nil
	}
	switch o := v.ref.(type) {
	case *rangeObject:
		return int(o.len()), nil
	case *view:
		return o.of.Len(), nil
	case *loopObject:
		return o.len(r)
	}
	return 0, typeErrorf("object of type '%s' has no len()", typeName(v))
}
