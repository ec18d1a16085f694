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
	if n := len(unnamedMerged(t, dump(t, disk), nil)); n != 2 {
		t.Fatalf("%d merged shards, want one of each kind", n)
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
			there := dump(t, disk)
			log, lerr := sink.ReadLog(there)
			if lerr != nil {
				t.Fatal(lerr)
			}
			if left := unnamedMerged(t, there, log); len(left) > 0 {
				t.Errorf("after %v: no entry names %q", err, left)
			}
			if _, err := d.MergeAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			there = dump(t, disk)
			sameLogical(t, there, want)
			if log, err = sink.ReadLog(there); err != nil {
				t.Fatal(err)
			}
			if left := unnamedMerged(t, there, log); len(left) > 0 || d.Stats().Merges != 1 {
				t.Errorf("%d merges, and no entry names %q", d.Stats().Merges, left)
			}
		})
	}
}

// unnamedMerged returns the merged shards in a folder that the log does not name. A nil log names none.
func unnamedMerged(t *testing.T, dir string, log *sink.Log) (left []string) {
	t.Helper()
	named := map[string]bool{}
	for _, kind := range []sink.Kind{sink.KindData, sink.KindFailures} {
		if log != nil {
			for s := range log.Shards(kind) {
				named[filepath.Base(s.Path)] = true
			}
		}
		paths, err := filepath.Glob(filepath.Join(dir, kind.String(), "*"))
		must(t, err)
		for _, path := range paths {
			if name := filepath.Base(path); strings.Contains(name, "-m-") && !named[name] {
				left = append(left, path)
			}
		}
	}
	return left
}
