package letta

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Extra holds the fields of an object that this package has no name for, as raw
// text. They are kept when the object is read and written again when it is
// written, so a newer server loses nothing by passing through here.
//
// What a round trip does change: a field of a server's object that is absent may
// be written as null, spaces go, and a number is printed anew (1.0 may become 1)
// unless it lies in a field of type json.RawMessage.
type Extra map[string]json.RawMessage

// unmarshalKeeping decodes the object in data into v, a pointer to a struct that
// has no UnmarshalJSON, and whatever the struct has no field for into extra.
func unmarshalKeeping(data []byte, v any, extra *Extra) error {
	if err := json.Unmarshal(data, v); err != nil {
		return err
	}
	*extra = nil
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil || len(all) == 0 {
		return err
	}
	forgetKnown(reflect.TypeOf(v).Elem(), all)
	if len(all) > 0 {
		*extra = all
	}
	return nil
}

// forgetKnown deletes the names that the fields of t have, those of embedded
// structs included. encoding/json matches names without regard to case; so does
// this.
func forgetKnown(t reflect.Type, all map[string]json.RawMessage) {
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		if f.Anonymous && tag == "" {
			forgetKnown(f.Type, all)
			continue
		}
		name, _, _ := strings.Cut(tag, ",")
		if name == "" || name == "-" {
			continue
		}
		if _, ok := all[name]; ok {
			delete(all, name)
			continue
		}
		for k := range all {
			if strings.EqualFold(k, name) {
				delete(all, k)
			}
		}
	}
}

// marshalKeeping encodes v, a struct without MarshalJSON, followed by extra in
// the order of its names.
func marshalKeeping(v any, extra Extra) ([]byte, error) {
	b, err := marshalText(v)
	if err != nil || len(extra) == 0 {
		return b, err
	}
	b = b[:len(b)-1] // the closing brace
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		key, err := marshalText(name)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, key...), ':'), extra[name]...)
	}
	return append(b, '}'), nil
}

// marshalText is json.Marshal without the escapes that only HTML needs.
func marshalText(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// kindOf reads the text of the discriminating field of a union.
func kindOf(data []byte, field string) (string, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return "", err
	}
	raw, ok := all[field]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return "", nil
	}
	var kind string
	if err := json.Unmarshal(raw, &kind); err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	return kind, nil
}

// unmarshalUnion decodes every element of an array into what choose makes for it.
func unmarshalUnion[T any](data []byte, choose func(element []byte) (T, error)) ([]T, error) {
	var raws []json.RawMessage
	if err := json.Unmarshal(data, &raws); err != nil || raws == nil {
		return nil, err
	}
	out := make([]T, len(raws))
	for i, raw := range raws {
		v, err := choose(raw)
		if err == nil {
			err = json.Unmarshal(raw, v)
		}
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		out[i] = v
	}
	return out, nil
}

// A Raw is an object of a kind that this package does not know, kept as it is.
type Raw struct {
	// Kind is the text of the field that tells the kinds apart, or empty.
	Kind string
	// JSON is the whole object.
	JSON json.RawMessage
}

// UnmarshalJSON keeps the object.
func (r *Raw) UnmarshalJSON(b []byte) error {
	r.JSON = bytes.Clone(b)
	return nil
}

// MarshalJSON returns the object as it was read.
func (r Raw) MarshalJSON() ([]byte, error) {
	if r.JSON == nil {
		return []byte("null"), nil
	}
	return r.JSON, nil
}
