package plainjson

import (
	"bytes"
	"encoding/json"
	"io"
)

// Compact returns a JSON value without white space, so that a snapshot has one line per task.
func Compact(v json.RawMessage) json.RawMessage {
	if v == nil {
		return nil
	}
	var out bytes.Buffer
	if json.Compact(&out, v) != nil {
		return v // cannot happen: v came from a decoder
	}
	return out.Bytes()
}

// Line encodes v on one line, without HTML escapes.
func Line(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	enc := NewEncoder(&out)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return Compact(bytes.TrimSpace(out.Bytes())), nil
}

// NewEncoder returns an encoder without HTML escapes.
func NewEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}
