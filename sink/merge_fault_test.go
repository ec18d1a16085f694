package sink_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/sink"
)

// TestMergeFault tests that no failed operation of a merge leaves an unnamed shard in data/ or
// failures/, where plain readers would see its rows twice. The next try merges.
func TestMergeFault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := sink.Config{MergeAt: 3}
	smallCommits(t, dir, cfg, 4, 7)
	want := logicalOf(t, dir)
	open := func(t *testing.T) (*sink.Dataset, *powerCut, *faultyFS) {
		t.Helper()
		disk := loaded(t, dir, 0)
		faults := faulty(disk, -1, syscall.ENOSPC)
		cfg := cfg
		cfg.FS = faults
		d := open(t, "run", cfg)
		return d, disk, faults
	}
	d, disk, faults := open(t)
	from := len(faults.Ops())
	if _, err := d.MergeAll(t.Context()); err != nil || d.Stats().Merges != 1 {
		t.Fatalf("%d merges, want 1; %v", d.Stats().Merges, err)
	}
	if c := readLog(t, dump(t, disk)).Commits; len(c) != 1 || len(c[0].Shards) != 2 {
		t.Fatalf("the log has %+v, want a merge with one shard of each kind", c)
	}
	ops := faults.Ops()
	from += slices.Index(ops[from:], "sync") // of the data shard
	for i, op := range ops[from:] {
		t.Run(fmt.Sprintf("%d-%s", i, op), func(t *testing.T) {
			t.Parallel()
			d, disk, faults := open(t)
			faults.at = from + i
			_, err := d.MergeAll(t.Context())
			if err != nil && strings.Contains(err.Error(), ": commit: ") {
				return // the entry can be durable: the run ends, and Create checks
			}
			named := func(when error) (dir string) {
				dir = dump(t, disk)
				for _, orphan := range wholeVerify(t, dir).Orphans {
					if !strings.HasPrefix(filepath.Base(orphan), ".tmp-") {
						t.Errorf("after %v: no entry names %s", when, orphan)
					}
				}
				return dir
			}
			named(err)
			if _, err := d.MergeAll(t.Context()); err != nil || d.Stats().Merges != 1 {
				t.Fatalf("%d merges, %v", d.Stats().Merges, err)
			}
			sameLogical(t, named(nil), want)
		})
	}
}
