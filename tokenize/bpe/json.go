package bpe

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A jsonReader walks a JSON text. The vocabulary and the merges are most of a
// tokenizer.json and are read straight into tables: encoding/json takes longer
// for the largest one than all else that loading does. Small values are decoded
// by strict.
type jsonReader struct {
	b       []byte
	i       int
	scratch []byte
	python  bool // NaN, Infinity and -Infinity are numbers: Python's json writes them
}

// maxJSONDepth bounds the nesting of values that are skipped.
const maxJSONDepth = 64

func (r *jsonReader) errorf(format string, args ...any) error {
	return fmt.Errorf("%w: byte %d: %s", ErrCorrupt, r.i, fmt.Sprintf(format, args...))
}

// peek returns the next byte that is not white space, 0 at the end.
func (r *jsonReader) peek() byte {
	for r.i < len(r.b) {
		switch c := r.b[r.i]; c {
		case ' ', '\n', '\t', '\r':
			r.i++
		default:
			return c
		}
	}
	return 0
}

// unexpected is the error of another byte, or the end, where something is wanted.
func (r *jsonReader) unexpected(want string) error {
	if r.peek(); r.i == len(r.b) {
		return r.errorf("the file ends here, want %s", want)
	}
	return r.errorf("found %q, want %s", r.b[r.i], want)
}

func (r *jsonReader) expect(c byte) error {
	if r.peek() != c {
		return r.unexpected(strconv.QuoteRune(rune(c)))
	}
	r.i++
	return nil
}

// more is called before each element of an object or array that ends with end:
// it steps over the separator and reports whether there is an element.
func (r *jsonReader) more(first *bool, end byte) (bool, error) {
	c := r.peek()
	if c == end {
		r.i++
		return false, nil
	}
	if *first {
		*first = false
		return true, nil
	}
	if c != ',' {
		return false, r.unexpected(fmt.Sprintf("',' or %q", end))
	}
	r.i++
	if r.peek() == end {
		return false, r.errorf("%q after ','", end)
	}
	return true, nil
}

// object calls f with each key of the object at r; f reads the value.
func (r *jsonReader) object(f func(key string) error) error {
	if err := r.expect('{'); err != nil {
		return err
	}
	for first := true; ; {
		ok, err := r.more(&first, '}')
		if err != nil || !ok {
			return err
		}
		key, err := r.str()
		if err != nil {
			return err
		}
		name := string(key)
		if err := r.expect(':'); err != nil {
			return err
		}
		if err := f(name); err != nil {
			return err
		}
	}
}

// str reads a string. The result is valid until the next call.
func (r *jsonReader) str() ([]byte, error) {
	if err := r.expect('"'); err != nil {
		return nil, err
	}
	b, start := r.b, r.i
	for i := start; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			r.i = i + 1
			return b[start:i], nil
		case c == '\\':
			r.i = i
			r.scratch = append(r.scratch[:0], b[start:i]...)
			return r.escaped()
		case c < 0x20:
			r.i = i
			return nil, r.errorf("control character %q in a string", c)
		}
	}
	r.i = len(b)
	return nil, r.errorf("the file ends inside a string")
}

// escaped continues a string at its first backslash.
func (r *jsonReader) escaped() ([]byte, error) {
	for r.i < len(r.b) {
		c := r.b[r.i]
		r.i++
		switch {
		case c == '"':
			return r.scratch, nil
		case c < 0x20:
			r.i--
			return nil, r.errorf("control character %q in a string", c)
		case c != '\\':
			r.scratch = append(r.scratch, c)
			continue
		}
		if r.i == len(r.b) {
			break
		}
		c = r.b[r.i]
		r.i++
		switch c {
		case '"', '\\', '/':
			r.scratch = append(r.scratch, c)
		case 'b':
			r.scratch = append(r.scratch, '\b')
		case 'f':
			r.scratch = append(r.scratch, '\f')
		case 'n':
			r.scratch = append(r.scratch, '\n')
		case 'r':
			r.scratch = append(r.scratch, '\r')
		case 't':
			r.scratch = append(r.scratch, '\t')
		case 'u':
			u, err := r.hex4()
			if err != nil {
				return nil, err
			}
			if utf16.IsSurrogate(u) {
				low := rune(-1)
				if r.i+1 < len(r.b) && r.b[r.i] == '\\' && r.b[r.i+1] == 'u' {
					r.i += 2
					if low, err = r.hex4(); err != nil {
						return nil, err
					}
				}
				if u = utf16.DecodeRune(u, low); u == utf8.RuneError {
					return nil, r.errorf("half a surrogate pair in a string")
				}
			}
			r.scratch = utf8.AppendRune(r.scratch, u)
		default:
			r.i--
			return nil, r.errorf("unknown escape \\%c", c)
		}
	}
	return nil, r.errorf("the file ends inside a string")
}

func (r *jsonReader) hex4() (rune, error) {
	if r.i+4 > len(r.b) {
		r.i = len(r.b)
		return 0, r.errorf("the file ends inside a string")
	}
	var v rune
	for _, c := range r.b[r.i : r.i+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, r.errorf("bad \\u escape")
		}
		v = v<<4 | rune(c)
	}
	r.i += 4
	return v, nil
}

// id reads a token id.
func (r *jsonReader) id() (int32, error) {
	c := r.peek()
	if c < '0' || c > '9' {
		return 0, r.unexpected("a token id")
	}
	v, start := 0, r.i
	for r.i < len(r.b) && '0' <= r.b[r.i] && r.b[r.i] <= '9' {
		if v = v*10 + int(r.b[r.i]-'0'); v > maxID {
			return 0, r.errorf("token id over %d", maxID)
		}
		r.i++
	}
	if r.i < len(r.b) {
		switch r.b[r.i] {
		case '.', 'e', 'E':
			return 0, r.errorf("a token id that is not an integer")
		}
	}
	if r.b[start] == '0' && r.i > start+1 {
		return 0, r.errorf("a token id with a leading zero")
	}
	return int32(v), nil
}

// raw steps over a value, which is checked to be JSON, and returns it.
func (r *jsonReader) raw() ([]byte, error) {
	r.peek()
	start := r.i
	err := r.skip(0)
	return r.b[start:r.i], err
}

func (r *jsonReader) skip(depth int) error {
	if depth > maxJSONDepth {
		return r.errorf("nested deeper than %d", maxJSONDepth)
	}
	switch c := r.peek(); c {
	case '{', '[':
		r.i++
		for first := true; ; {
			ok, err := r.more(&first, c+2)
			if err != nil || !ok {
				return err
			}
			if c == '{' {
				if _, err := r.str(); err != nil {
					return err
				}
				if err := r.expect(':'); err != nil {
					return err
				}
			}
			if err := r.skip(depth + 1); err != nil {
				return err
			}
		}
	case '"':
		_, err := r.str()
		return err
	default:
		_, err := r.scalar()
		return err
	}
}

// scalar reads a number, true, false or null.
func (r *jsonReader) scalar() ([]byte, error) {
	r.peek()
	start := r.i
	for r.i < len(r.b) && isJSONScalar(r.b[r.i]) {
		r.i++
	}
	b := r.b[start:r.i]
	if string(b) == "null" || string(b) == "true" || string(b) == "false" || isJSONNumber(b) {
		return b, nil
	}
	if r.python && (string(b) == "NaN" || string(b) == "Infinity" || string(b) == "-Infinity") {
		return b, nil
	}
	r.i = start
	if len(b) == 0 {
		return nil, r.unexpected("a value")
	}
	return nil, r.errorf("%.40q is not a value", b)
}

func isJSONScalar(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '+' || c == '-' || c == '.'
}

// isJSONNumber reports whether b, of the letters of isJSONScalar, is a number.
func isJSONNumber(b []byte) bool {
	digits := func() bool {
		n := 0
		for n < len(b) && '0' <= b[n] && b[n] <= '9' {
			n++
		}
		b = b[n:]
		return n > 0
	}
	b = bytes.TrimPrefix(b, []byte{'-'})
	if len(b) > 1 && b[0] == '0' && '0' <= b[1] && b[1] <= '9' || !digits() {
		return false
	}
	if len(b) > 0 && b[0] == '.' {
		if b = b[1:]; !digits() {
			return false
		}
	}
	if len(b) > 0 && b[0]|0x20 == 'e' {
		if b = b[1:]; len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		if !digits() {
			return false
		}
	}
	return len(b) == 0
}

// appendJSONString appends s as a JSON string. Its letters of any kind stand for
// themselves; raw text was checked to be valid UTF-8.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			dst = fmt.Appendf(dst, "\\u%04x", c)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
