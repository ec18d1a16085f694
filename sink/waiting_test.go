package sink_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// TestWaiting tests that an uncommitted sample is yielded once with its rows, and not after its commit.
func TestWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, dir := create(t, sink.Config{MaxShardAge: time.Minute})
		wait := start(t.Context(), t, d)
		all := samples(3)
		keys := map[string]int{}
		for _, s := range all {
			keys[s.Key] = len(s.Rows[0].InputIDs)
			must(t, d.Append(t.Context(), s, func(error) {}))
		}
		log := readLog(t, dir)
		count := func() (n int) {
			for w := range each(t, log.Waiting()) {
				if len(w.Rows) != 1 || len(w.Rows[0].InputIDs) != keys[w.Key] || w.Rows[0].SampleKey != w.Key || w.Rows[0].Verification == "" {
					t.Errorf("%s: %d rows", w.Key, len(w.Rows))
				}
				n++
			}
			return n
		}
		if n := count(); n != 3 {
			t.Errorf("%d samples wait, want 3", n)
		}
		for range log.Waiting() {
			break // stop early
		}
		if has, err := sink.HasRows(dir); !has || err != nil {
			t.Errorf("HasRows() = %t, %v while the only rows wait", has, err)
		}
		saved, wal := t.TempDir(), filepath.Join(dir, "wal")
		must(t, os.CopyFS(saved, os.DirFS(wal)))
		must(t, errors.Join(d.Close(t.Context()), wait()))
		must(t, log.Follow())
		if n := count(); n != 0 || len(log.Done()) != 3 {
			t.Errorf("%d samples wait, %d are done", n, len(log.Done()))
		}
		// As after a kill before the segments were deleted.
		must(t, os.CopyFS(wal, os.DirFS(saved)))
		if n, left := count(), len(segments(t, dir)); n != 0 || left == 0 {
			t.Errorf("%d samples wait in %d segments, all of which are committed", n, left)
		}
		// The same with a log that dropped its samples.
		var err error
		log, err = sink.ReadLogIn(nil, dir, func(*sink.Commit) {})
		must(t, err)
		if n := count(); n != 0 {
			t.Errorf("%d samples wait of a log without its samples, all of which are committed", n)
		}
	})
}

// TestGateCreateReads tests that Create on a closed dataset reads its log once, and no shard.
func TestGateCreateReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sinktest.Write(t, dir, sink.Config{}, samples(3))
	opened := map[string]int{}
	cfg := sink.Config{FS: hookFS{sink.OS(), func(op string, paths ...string) error {
		if op == "open" {
			opened[paths[0]]++
		}
		return nil
	}}}
	open(t, dir, cfg)
	entries := 0
	for name, n := range opened {
		switch filepath.Base(filepath.Dir(name)) {
		case "_commits":
			if entries++; n > 1 {
				t.Errorf("%s was read %d times", name, n)
			}
		case "data", "failures":
			if n > 1 { // for its size
				t.Errorf("%s was opened %d times", name, n)
			}
		}
	}
	if entries == 0 {
		t.Error("no entry was read")
	}
}
