package sink_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/sink"
)

// TestGateFolderOperations bounds the file system operations of Create and Verify. On a network file
// system, each of them is a round trip.
func TestGateFolderOperations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallCommits(t, dir, sink.Config{}, 40, 5)
	shards := 0
	for _, c := range readLog(t, dir).Commits {
		shards += len(c.Shards)
	}
	create, verify := faulty(sink.OS(), -1, nil), faulty(sink.OS(), -1, nil)
	open(t, dir, sink.Config{FS: create})
	r, err := sink.Verify(t.Context(), dir, sink.VerifyOptions{FS: verify})
	must(t, err)
	if r.ProblemCount > 0 {
		t.Error(r.Problems)
	}
	for name, f := range map[string]*faultyFS{"Create": create, "Verify": verify} {
		ops := slices.DeleteFunc(slices.Clone(f.Ops()), func(op string) bool { return op == "read" })
		t.Logf("%s: %d operations, %d without reads, for 40 commits with %d shards", name, len(f.Ops()), len(ops), shards)
		if slices.Contains(ops, "stat") || len(ops) > 2*(3*40+shards)+20 { // open and close, of an entry at most 3 times
			t.Errorf("%s: %d operations, with stat: %t", name, len(ops), slices.Contains(ops, "stat"))
		}
	}
}

// TestBackupInLog tests that a copy of the log in a subfolder is not part of the log.
func TestBackupInLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallCommits(t, dir, sink.Config{MergeAt: 3}, 4, 5)
	before := logicalOf(t, dir)
	backup := t.TempDir()
	must(t, os.CopyFS(backup, os.DirFS(dir)))
	for _, sub := range []string{"_commits", "data"} {
		must(t, os.CopyFS(filepath.Join(dir, sub, "backup"), os.DirFS(filepath.Join(backup, sub))))
	}
	must(t, os.Symlink("..", filepath.Join(dir, "_commits", "up")))
	if n, err := open(t, dir, sink.Config{MergeAt: 3}).MergeAll(t.Context()); n == 0 || err != nil {
		t.Fatalf("%d merges, %v", n, err)
	}
	if after := logicalOf(t, dir); !slices.Equal(before, after) {
		t.Errorf("%d lines, want %d", len(after), len(before))
	}
	wholeVerify(t, dir)
}
