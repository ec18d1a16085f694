package letta

import (
	"encoding/json"
	"fmt"
	"strings"
)

// RawJSON is the JSON text of a value from the server. The text is empty if there was no value.
type RawJSON string

// IsNull reports whether the value is absent or null.
func (r RawJSON) IsNull() bool { return r == "" || r == "null" }

// Decode calls json.Unmarshal.
func (r RawJSON) Decode(v any) error { return json.Unmarshal([]byte(r), v) }

// Member returns the value of the object's last member called name. It returns "" if there is no
// such member or the text is not an object.
func (r RawJSON) Member(name string) RawJSON {
	var value RawJSON
	s := newScanner(string(r))
	for n := range s.Members {
		if n == name {
			value = s.raw()
		}
	}
	if s.End() != nil {
		return ""
	}
	return value
}

// With returns the object with a new value for the member called name. If the member is missing, it
// is appended. An empty value becomes null. The rest is unchanged.
func (r RawJSON) With(name string, value RawJSON) (RawJSON, error) {
	if value == "" {
		value = "null"
	}
	text := validText(string(r))
	s := newValidScanner(text)
	from, to, members := 0, 0, 0
	if s.Kind() != '{' {
		return "", fmt.Errorf("letta: %.20q is not an object", string(r))
	}
	for n := range s.Members {
		members++
		if at := s.start(); n == name {
			s.Skip()
			from, to = at, s.Offset()
		}
	}
	if err := s.End(); err != nil {
		return "", err
	}
	if to > 0 {
		return RawJSON(text[:from]) + value + RawJSON(text[to:]), nil
	}
	brace := strings.LastIndexByte(text, '}')
	comma := ","
	if members == 0 {
		comma = ""
	}
	return RawJSON(text[:brace]) + RawJSON(comma) + Text(name) + ":" + value + RawJSON(text[brace:]), nil
}

// Text encodes a string as JSON.
func Text(text string) RawJSON {
	b, err := Marshal(text)
	if err != nil {
		panic("letta: internal error: a string cannot be encoded") // unreachable, because every string can be encoded
	}
	return RawJSON(b)
}
