package bpe

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/internal/textview"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A jsonReader reads the JSON of a model file. The vocabulary and the merges make up most of a
// tokenizer.json and are read directly into tables. The method strict reads the other values. The
// reader keeps its first error, which fault and end return.
type jsonReader struct {
	*strictjson.Scanner
	b []byte
}

const maxJSONDepth = 64

// newReader returns a reader for b, which must be UTF-8 and must not change while it is being read.
// If python is true, the reader also accepts numbers such as NaN, which Python's json module writes
// although they are not valid JSON.
func newReader(b []byte, python bool) *jsonReader {
	o := strictjson.Options{NonFinite: python, CheckedUTF8: true, MaxDepth: maxJSONDepth}
	return &jsonReader{strictjson.New(textview.Of(b), o), b}
}

func (r *jsonReader) failf(format string, args ...any) { r.Fail(fmt.Sprintf(format, args...)) }

// unsupported sets an error that wraps ErrUnsupported.
func (r *jsonReader) unsupported(format string, args ...any) {
	r.FailWith(unsupported(format, args...))
}

// fault returns the first error so far, or nil.
func (r *jsonReader) fault() error { return corrupt(r.Err()) }

// end is like fault, but also checks that the text ends here.
func (r *jsonReader) end() error { return corrupt(r.End()) }

func corrupt(err error) error {
	if bad, ok := errors.AsType[*strictjson.Error](err); ok {
		return fmt.Errorf("%w: %w", ErrCorrupt, bad)
	}
	return err
}

func (r *jsonReader) id() int32 {
	id := r.Int(32)
	if r.Err() == nil && (id < 0 || id > maxID) {
		r.failf("token id %d (want 0 to %d)", id, maxID)
	}
	return int32(id)
}

// A jsonValue is a JSON value of any type in a configuration file.
type jsonValue struct {
	kind byte   // as returned by strictjson.Scanner.Kind, or 0 without a value
	text string // for a string or number
	keys []string
	vals []jsonValue // for a list or object
}

// value reads a value. The result does not share memory with the text of r.
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
		n, _ := strconv.ParseFloat(v.text, 64) // a number that is too large becomes infinite, as in Python
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

// members yields the members of an object, or nothing if v is nil.
func (v *jsonValue) members() iter.Seq2[string, *jsonValue] {
	return func(yield func(string, *jsonValue) bool) {
		for i := 0; v != nil && i < len(v.keys); i++ {
			if !yield(v.keys[i], &v.vals[i]) {
				return
			}
		}
	}
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
