package letta

import (
	"fmt"
	"log/slog"
	"strings"
)

// A Secret is a text that no way of printing shows. Only the client that sends it
// looks inside.
type Secret string

const hidden = "***"

// String is *** or empty.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// Format prints String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText writes String, also for encoding/json.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// scrub removes the secret from a text that came from outside.
func (s Secret) scrub(text string) string {
	if len(s) == 0 || !strings.Contains(text, string(s)) {
		return text
	}
	return strings.ReplaceAll(text, string(s), hidden)
}
