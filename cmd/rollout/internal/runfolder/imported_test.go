package runfolder_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
)

func fillNothing(string) error { return nil }

// TestImportIntoAFolder checks that an import replaces a folder with leftovers of a dead process,
// but not a folder in which another process is starting a run.
func TestImportIntoAFolder(t *testing.T) {
	t.Parallel()
	left := filepath.Join(t.TempDir(), "left")
	must(t, os.Mkdir(left, 0o700))
	for _, name := range []string{runfolder.LockFile, runfolder.TasksFile, ".tmp-tasks.jsonl-1"} {
		must(t, os.WriteFile(filepath.Join(left, name), nil, 0o600))
	}
	if err := runfolder.Import(left, "run", 0o600, []string{"a.jsonl"}, fillNothing); err != nil || !runfolder.Exists(left) {
		t.Errorf("a folder with what a dead process left: %v", err)
	}

	taken := filepath.Join(t.TempDir(), "taken")
	must(t, os.Mkdir(taken, 0o700))
	lock, err := runfolder.TakeLock(taken, 0o600)
	must(t, err)
	err = runfolder.Import(taken, "run", 0o600, []string{"a.jsonl"}, fillNothing)
	if exit.Code(err) != exit.Locked {
		t.Errorf("a folder that is locked: %v, want %d", err, exit.Locked)
	}
	if _, err := os.Stat(filepath.Join(taken, runfolder.LockFile)); err != nil {
		t.Errorf("the lock of a live process: %v", err)
	}
	must(t, lock.Close())
	entries, err := os.ReadDir(filepath.Dir(taken))
	if err = errors.Join(err, runfolder.Import(taken, "run", 0o600, []string{"a.jsonl"}, fillNothing)); err != nil || len(entries) != 1 {
		t.Errorf("the same, without its process: %v, beside it %v", err, entries)
	}
}

// TestImportsAtOnce checks that one of several simultaneous imports creates the run. The others
// report that it exists, and leave no files.
func TestImportsAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		dir := filepath.Join(t.TempDir(), "run")
		errs := make([]error, 8)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = runfolder.Import(dir, "run", 0o600, []string{"a.jsonl"}, fillNothing) })
		}
		all.Wait()
		made := 0
		for _, err := range errs {
			switch {
			case err == nil:
				made++
			case exit.Code(err) != exit.Folder && exit.Code(err) != exit.Locked:
				t.Errorf("exit status %d: %v", exit.Code(err), err)
			}
		}
		if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || made != 1 || len(entries) != 1 {
			t.Fatalf("%d made the run, beside it %v, %v", made, entries, err)
		}
	}
}

// must fails the test at err.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
