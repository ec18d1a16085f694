package main

import (
	"fmt"
	"io"
	"strings"
)

// A secret is a value that must not be seen. It is given by reference, and only
// the reference is ever printed or stored.
type secret struct {
	ref   string // ${env:NAME} or ${file:/path}; empty: no secret
	value string
}

// hidden is what stands in place of a secret.
const hidden = "***"

func (s secret) String() string {
	if s.ref == "" {
		return ""
	}
	return hidden
}

// GoString, MarshalText and Format keep the value out of every way of printing.
func (s secret) GoString() string             { return s.String() }
func (s secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s secret) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, s.String()) }

// reveal returns the value itself, for the one place that sends it.
func (s secret) reveal() string { return s.value }

// parseSecret follows a reference. A literal is refused: configuration files are
// copied, committed and mailed.
func parseSecret(text string, getenv func(string) string) (secret, error) {
	if text == "" {
		return secret{}, nil
	}
	kind, name, ok := cutReference(text)
	if !ok {
		return secret{}, fmt.Errorf("a secret must be a reference, ${env:NAME} or ${file:/path}")
	}
	if kind == "env" {
		v := getenv(name)
		if v == "" {
			return secret{}, fmt.Errorf("the environment variable %s is not set", name)
		}
		return secret{ref: text, value: v}, nil
	}
	b, err := readInput(name, maxSecretBytes, inputWait)
	if err != nil {
		return secret{}, err
	}
	v := strings.TrimRight(string(b), "\r\n")
	if v == "" {
		return secret{}, fmt.Errorf("%s is empty", name)
	}
	return secret{ref: text, value: v}, nil
}

// cutReference takes ${env:NAME} and ${file:PATH} apart.
func cutReference(text string) (kind, name string, ok bool) {
	inner, ok := strings.CutPrefix(text, "${")
	if !ok {
		return "", "", false
	}
	inner, ok = strings.CutSuffix(inner, "}")
	if !ok {
		return "", "", false
	}
	kind, name, ok = strings.Cut(inner, ":")
	return kind, name, ok && name != "" && (kind == "env" || kind == "file")
}
