package bpe

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/internal/textview"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A jsonReader reads the JSON of a model file. The vocabulary and the merges are most of a
// tokenizer.json and are read directly into tables. Small values are decoded by strict.
type jsonReader struct {
	*strictjson.Scanner
	b []byte
}

// maxJSONDepth bounds the nesting of values.
const maxJSONDepth = 64

// newReader returns a reader of b, which must be UTF-8 and must not change while it is read. python
// allows the numbers that Python's json writes and JSON does not have.
func newReader(b []byte, python bool) *jsonReader {
	o := strictjson.Options{NonFinite: python, CheckedUTF8: true, MaxDepth: maxJSONDepth}
	return &jsonReader{strictjson.New(textview.Of(b), o), b}
}

func (r *jsonReader) errorf(format string, args ...any) error {
	return errorAt(r.Offset(), format, args...)
}

func errorAt(at int, format string, args ...any) error {
	return fmt.Errorf("%w: byte %d: %s", ErrCorrupt, at, fmt.Sprintf(format, args...))
}

// fault returns the error of the text up to here.
func (r *jsonReader) fault() error { return corrupt(r.Err()) }

// end is like fault at the end of the text.
func (r *jsonReader) end() error { return corrupt(r.End()) }

func corrupt(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// object calls f with each key of an object. f reads the value.
func (r *jsonReader) object(f func(key string) error) error {
	for key := range r.Members {
		if err := f(key); err != nil {
			return err
		}
	}
	return r.fault()
}

// list calls f before each element of a list. f reads the element.
func (r *jsonReader) list(f func(i int) error) error {
	for i := range r.Elements {
		if err := f(i); err != nil {
			return err
		}
	}
	return r.fault()
}

// id reads a token id.
func (r *jsonReader) id() (int32, error) {
	id := r.Int(32)
	if r.Err() == nil && (id < 0 || id > maxID) {
		return 0, r.errorf("token id %d (want 0 to %d)", id, maxID)
	}
	return int32(id), r.fault()
}

// raw reads a value and returns its text.
func (r *jsonReader) raw() ([]byte, error) {
	r.Kind()
	from := r.Offset()
	r.Skip()
	if r.Err() != nil {
		return nil, r.fault()
	}
	return r.b[from:r.Offset()], nil
}

// skip reads a value.
func (r *jsonReader) skip() error {
	r.Skip()
	return r.fault()
}

// appendJSONString appends s, which must be UTF-8, as a JSON string.
func appendJSONString(dst []byte, s string) []byte {
	b, _ := json.Marshal(s) // a string can be encoded
	return append(dst, b...)
}

// A jsonValue is any value of a configuration.
type jsonValue struct {
	kind byte   // as strictjson.Scanner.Kind returns it; 0: no value
	text string // of a string or number
	keys []string
	vals []jsonValue // of a list or object
}

// value reads a value into memory. The result does not refer to the text of r.
func (r *jsonReader) value() jsonValue {
	v := jsonValue{kind: r.Kind()}
	switch v.kind {
	case '{':
		for key := range r.Members {
			v.keys, v.vals = append(v.keys, strings.Clone(key)), append(v.vals, r.value())
		}
	case '[':
		for range r.Elements {
			v.vals = append(v.vals, r.value())
		}
	case '"':
		v.text = strings.Clone(r.Text())
	case '0':
		v.text = strings.Clone(r.Number())
	default:
		r.Skip()
	}
	return v
}

func (v *jsonValue) is() bool { return v != nil && v.kind != 0 && v.kind != 'n' }

// truthy returns Python's bool(v).
func (v *jsonValue) truthy() bool {
	switch {
	case !v.is(), v.kind == 'f':
		return false
	case v.kind == '"':
		return v.text != ""
	case v.kind == '[', v.kind == '{':
		return len(v.vals) > 0
	case v.kind == '0':
		n, _ := strconv.ParseFloat(v.text, 64) // infinite if it is too large, as in Python
		return n != 0
	}
	return true
}

func (v *jsonValue) get(key string) *jsonValue {
	if v == nil || v.kind != '{' {
		return nil
	}
	if i := slices.Index(v.keys, key); i >= 0 {
		return &v.vals[i]
	}
	return nil
}

func (v *jsonValue) what() string {
	switch v.kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "a bool"
	case '0':
		return "a number"
	case '"':
		return "a string"
	case '[':
		return "a list"
	}
	return "an object"
}
