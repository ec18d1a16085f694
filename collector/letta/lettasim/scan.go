package lettasim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Recorded bodies are kept byte for byte, so they are never decoded and encoded
// again: what must be known of them is found by scanning. All functions here
// take valid JSON; cases are checked when they are loaded.

// skipSpace returns the first position at or after i that is not a space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the position after the string that begins at b[i] == '"'.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// skipValue returns the position after the value that begins at i.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return len(b)
}

// elements calls yield with the borders of each element of the array b.
func elements(b []byte, yield func(start, end int)) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '[' {
		return
	}
	for i = skipSpace(b, i+1); i < len(b) && b[i] != ']'; i = skipSpace(b, i) {
		end := skipValue(b, i)
		yield(i, end)
		if i = skipSpace(b, end); i < len(b) && b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
}

// members calls yield with the key and the borders of each value of the object b.
func members(b []byte, yield func(key string, start, end int)) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return
	}
	for i = skipSpace(b, i+1); i < len(b) && b[i] != '}'; {
		end := skipString(b, i)
		key := string(b[i+1 : end-1])
		i = skipSpace(b, end)
		i = skipSpace(b, i+1) // the colon
		end = skipValue(b, i)
		yield(key, i, end)
		if i = skipSpace(b, end); i < len(b) && b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
}

// split returns the elements of a JSON array as they stand.
func split(b []byte) [][]byte {
	var out [][]byte
	elements(b, func(start, end int) { out = append(out, b[start:end:end]) })
	return out
}

// An object is a JSON object whose members keep their order and their bytes.
type object struct {
	keys   []string
	values map[string][]byte
}

func parseObject(b []byte) (*object, error) {
	if !json.Valid(b) || len(bytes.TrimSpace(b)) == 0 || bytes.TrimSpace(b)[0] != '{' {
		return nil, fmt.Errorf("want a JSON object")
	}
	o := &object{values: map[string][]byte{}}
	members(b, func(key string, start, end int) { o.set(key, b[start:end:end]) })
	return o, nil
}

// clone copies the members; their bytes are shared and never written to.
func (o *object) clone() *object {
	c := &object{keys: append([]string(nil), o.keys...), values: make(map[string][]byte, len(o.values))}
	maps.Copy(c.values, o.values)
	return c
}

func (o *object) set(key string, raw []byte) {
	if _, ok := o.values[key]; !ok {
		o.keys = append(o.keys, key)
	}
	o.values[key] = raw
}

func (o *object) text(key, value string) { o.set(key, quote(nil, value)) }

// string returns the member as text, empty where it is none.
func (o *object) string(key string) string {
	var s string
	_ = json.Unmarshal(o.values[key], &s)
	return s
}

func (o *object) append(dst []byte) []byte {
	dst = append(dst, '{')
	for i, k := range o.keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = quote(dst, k)
		dst = append(dst, ':')
		dst = append(dst, o.values[k]...)
	}
	return append(dst, '}')
}

// quote appends s as a JSON string, as the server writes it: nothing but what
// must be is escaped.
func quote(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(slices.Grow(dst, len(s)+2), '"')
	done := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[done:i]...)
		done = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, s[done:]...), '"')
}

// quoteAll appends a JSON array of strings.
func quoteAll(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = quote(dst, s)
	}
	return append(dst, ']')
}

// array joins values to a JSON array.
func array(values [][]byte) []byte {
	out := []byte{'['}
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}
