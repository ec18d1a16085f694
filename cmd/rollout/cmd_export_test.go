package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
)

// An interrupt ends an export also while the writer of the format writes its last part, and leaves no file.
func TestInterruptedExport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	err := new(program).writeOut(new(runs.Run), filepath.Join(dir, "0.pt"), func(w io.Writer) error {
		out := interruptedWriter{ctx, w}
		if _, err := out.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
			return err
		}
		cancel()
		_, err := out.Write([]byte("x"))
		return err
	})
	if entries, _ := os.ReadDir(dir); !errors.Is(err, context.Canceled) || len(entries) != 0 {
		t.Errorf("error %v, entries %v", err, entries)
	}
}
