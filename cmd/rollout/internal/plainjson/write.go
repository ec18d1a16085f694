package plainjson

import (
	"bytes"
	"encoding/json"
	"io"
)

// Compact copies a JSON value without the spaces, so that a snapshot has one line
// per task.
func Compact(v json.RawMessage) json.RawMessage {
	if v == nil {
		return nil
	}
	var out bytes.Buffer
	if json.Compact(&out, v) != nil {
		return v // cannot be: v came out of a decoder
	}
	return out.Bytes()
}

// Line is v on one line, without escaping what only HTML minds.
func Line(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	enc := NewEncoder(&out)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return Compact(bytes.TrimSpace(out.Bytes())), nil
}

// NewEncoder writes JSON without escaping what only HTML minds.
func NewEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}
