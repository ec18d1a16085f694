package letta_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A recording is one agent's life as recorded from a real server; testdata/README.md
// says what its fields are.
type recording struct {
	Case         string            `json:"case"`
	Agent        json.RawMessage   `json:"agent"`
	System       json.RawMessage   `json:"system"`
	Conversation json.RawMessage   `json:"conversation"`
	Tools        []json.RawMessage `json:"tools"`
	Exchanges    []struct {
		Request struct {
			Method string          `json:"method"`
			Path   string          `json:"path"`
			Body   json.RawMessage `json:"body"`
		} `json:"request"`
		Response struct {
			Status int             `json:"status"`
			Body   json.RawMessage `json:"body"`
		} `json:"response"`
		Runs []struct {
			Run      json.RawMessage   `json:"run"`
			Steps    []json.RawMessage `json:"steps"`
			Messages []json.RawMessage `json:"messages"`
			Traces   []json.RawMessage `json:"traces"`
		} `json:"runs"`
	} `json:"exchanges"`
}

const recordings = "../../testdata/letta"

// readRecording reads one recorded case.
func readRecording(tb testing.TB, name string) *recording {
	tb.Helper()
	f, err := os.Open(filepath.Join(recordings, name+".json.gz"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		tb.Fatal(err)
	}
	// What the engine answered may hold a bare NaN or Infinity, which is not JSON; the server's
	// own answers never do.
	for _, word := range []string{"[NaN,", "[-Infinity,", "[Infinity,"} {
		b = bytes.ReplaceAll(b, []byte(word), []byte("[null,"))
	}
	r := new(recording)
	if err := json.Unmarshal(b, r); err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return r
}

// recordedCases are the names of all recorded lives.
func recordedCases(tb testing.TB) []string {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join(recordings, "*.json.gz"))
	if err != nil || len(paths) < 30 {
		tb.Fatalf("found %d recordings in %s, want more than 30 (%v)", len(paths), recordings, err)
	}
	var names []string
	for _, p := range paths {
		if name := strings.TrimSuffix(filepath.Base(p), ".json.gz"); name != "engine-request" {
			names = append(names, name)
		}
	}
	return names
}

// jsonTree decodes JSON and keeps the text of numbers.
func jsonTree(tb testing.TB, b []byte) any {
	tb.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		tb.Fatalf("not JSON: %v\n%.200s", err, b)
	}
	return v
}
