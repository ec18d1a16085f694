package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/sink"
)

// An interrupt ends an import of a pipe that is silent, at its beginning and later, and
// leaves nothing.
func TestImportInterrupted(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"", `{"sample_key":"a","attempt":1,"group_id":"a","group_size":1,"sample_index":0}` + "\n"} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		stdin, to := io.Pipe()
		go func() {
			_, _ = io.WriteString(to, line) // it is read, or the test hangs
			cancel()
		}()
		var said strings.Builder
		if code := run(ctx, []string{"import", "-", "--out", filepath.Join(dir, "run")}, stdin, io.Discard, &said, os.Getenv); code != exit.Interrupted {
			t.Errorf("after %q: exit status %d, want %d: %s", line, code, exit.Interrupted, said.String())
		}
		_ = to.Close()
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("after %q: %v is left, %v", line, left, err)
		}
	}
}

// A sample without a key that is refused before it ends is the one that is read, not one
// before the first.
func TestImportRefusesFirst(t *testing.T) {
	t.Parallel()
	in := &importer{now: sampleLines{lines: []string{"x.jsonl: line 1"}}}
	err := in.failed(&sink.SampleError{Row: 0, Err: errors.New("too large")})
	if err == nil || !strings.HasPrefix(err.Error(), "x.jsonl: line 1: ") {
		t.Error(err)
	}
}
