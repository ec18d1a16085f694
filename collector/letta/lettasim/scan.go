package lettasim

import (
	"encoding/json"
	"errors"
	"maps"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// The functions in this file keep the values in recorded bodies byte for byte. Only an object or
// array whose members change is re-encoded, without white space between members.

func newScanner(b []byte) *strictjson.Scanner {
	return strictjson.New(string(b), strictjson.GoOptions())
}

// The function elements calls yield with the bounds of each element in the array b.
func elements(b []byte, yield func(start, end int)) {
	s := newScanner(b)
	for range s.Elements {
		start := s.Offset()
		if s.Skip(); s.Err() == nil {
			yield(start, s.Offset())
		}
	}
}

// The function members calls yield with the key and the bounds of the value of each member in the
// object b.
func members(b []byte, yield func(key string, start, end int)) {
	s := newScanner(b)
	for key := range s.Members {
		start := s.Offset()
		if s.Skip(); s.Err() == nil {
			yield(key, start, s.Offset())
		}
	}
}

// split returns the elements of a JSON array unchanged.
func split(b []byte) [][]byte {
	var out [][]byte
	elements(b, func(start, end int) { out = append(out, b[start:end:end]) })
	return out
}

// An object is a JSON object. It keeps the order of the members and the bytes of their values.
type object struct {
	keys   []string
	values map[string][]byte
}

func parseObject(b []byte) (*object, error) {
	if newScanner(b).Kind() != '{' || strictjson.Check(string(b), strictjson.GoOptions()) != nil {
		return nil, errors.New("want a JSON object")
	}
	o := &object{values: map[string][]byte{}}
	members(b, func(key string, start, end int) { o.set(key, b[start:end:end]) })
	return o, nil
}

// clone returns a copy of o. The bytes of the values are shared, because they are never modified.
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

// string returns the value of a string member. For any other value it returns "".
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

// quote appends s as a JSON string, with the escapes of the server.
func quote(dst []byte, s string) []byte { return strictjson.AppendText(dst, s) }

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

func array[T ~[]byte](values []T) []byte {
	out := []byte{'['}
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}
