package durable_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/rollout-rl/rollout/sink/durable"
)

func TestSyncDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := durable.SyncDir(dir); err != nil {
		t.Error(err)
	}
	if err := durable.SyncDir(filepath.Join(dir, "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a missing folder: %v", err)
	}
}
