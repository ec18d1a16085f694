// Package lettatest contains helpers for tests of the client and of packages that use the client.
// It provides recordings from a real server, a server that replays a recording, and a server and a
// client in fake time.
package lettatest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// A Recording is the recorded life of an agent.
type Recording = lettasim.Recording

// Dir returns the folder with the recordings, which is testdata/letta in this module.
func Dir(tb testing.TB) string {
	tb.Helper()
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "testdata", "letta")
		}
		if abs, err := filepath.Abs(dir); err != nil || abs == filepath.Dir(abs) {
			tb.Fatal("the test does not run within the module")
		}
	}
}

// Read returns the recording with this name.
func Read(tb testing.TB, name string) *Recording {
	tb.Helper()
	b, err := tokenizetest.Recording(filepath.Join(Dir(tb), name+".json.gz"))
	if err != nil {
		tb.Fatal(err)
	}
	r := new(Recording)
	if err := json.Unmarshal(b, r); err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return r
}

// Names returns the names of all recordings.
func Names(tb testing.TB) []string {
	tb.Helper()
	files, err := os.ReadDir(Dir(tb))
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, f := range files {
		if name, is := strings.CutSuffix(f.Name(), ".json.gz"); is && name != "engine-request" {
			names = append(names, name)
		}
	}
	if len(names) < 30 {
		tb.Fatalf("found %d recordings in %s, want at least 30", len(names), Dir(tb))
	}
	return names
}

// Tree decodes JSON. Numbers are decoded as json.Number.
func Tree(tb testing.TB, b []byte) any {
	tb.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		tb.Fatalf("not JSON: %v\n%.200s", err, b)
	}
	return v
}
