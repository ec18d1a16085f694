package format

import (
	"bytes"
	"encoding/json"
	"io"
)

// CompactJSON returns a JSON value without white space.
func CompactJSON(v json.RawMessage) json.RawMessage {
	if v == nil {
		return nil
	}
	var out bytes.Buffer
	if json.Compact(&out, v) != nil {
		return v // cannot happen: v came from a decoder
	}
	return out.Bytes()
}

// JSONLine encodes v on one line, without HTML escapes.
func JSONLine(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	err := NewJSONEncoder(&out).Encode(v)
	return bytes.TrimSpace(out.Bytes()), err
}

// NewJSONEncoder returns an encoder without HTML escapes.
func NewJSONEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}
