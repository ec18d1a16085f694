package sink_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestCopiedLog tests that a dataset that was copied from a folder to a bucket is the same dataset,
// although merges in the folder have removed entries, and that a process can continue it there.
func TestCopiedLog(t *testing.T) {
	t.Parallel()
	dir, b := t.TempDir(), newBucket(t)
	cfg := sink.Config{MergeAt: 3}
	smallCommits(t, dir, cfg, 11, 5)
	if n, err := open(t, dir, cfg).MergeAll(t.Context()); n < 2 || err != nil {
		t.Fatalf("%d merges, %v", n, err)
	}
	smallCommits(t, dir, cfg, 1, 77)
	want := linesOf(t, readLog(t, dir))
	b.upload(t, dir)
	if n := len(b.server.Keys("bucket")); slices.Contains(b.server.Keys("bucket"), entryKey(1)) {
		t.Fatalf("%d objects, and none is missing", n)
	}

	check := func(want []string) {
		t.Helper()
		log := b.readLog(t)
		if got := linesOf(t, log); !slices.Equal(got, want) {
			t.Errorf("the bucket has other samples than the folder: %d lines, want %d", len(got), len(want))
		}
		var seqs []int64
		_, err := sink.ReadLogIn(b, "", func(c *sink.Commit) { seqs = append(seqs, c.Seq) })
		must(t, err)
		var logical []int64
		for c := range log.Originals() {
			logical = append(logical, c.Seq)
		}
		if !slices.Equal(seqs, logical) {
			t.Errorf("commits %d, want %d", seqs, logical)
		}
		if r := b.verify(t); len(r.Orphans) > 0 {
			t.Errorf("orphans: %q", r.Orphans)
		}
	}
	check(want)

	// A process continues with the log, up to and after a log checkpoint.
	more := b.next(t, sink.Config{CommitGroups: true, MergeAt: 3, FS: unsynced{sink.OS()}})
	builder := sinktest.NewBuilder(9)
	for range 2 {
		d := open(t, t.TempDir(), more)
		d.SetSyncEvery(0)
		wait := start(t.Context(), t, d)
		for range 40 {
			commitAll(t, d, alone([]*tokenize.Sample{builder.Sample(builder.Row(2, 3))})...)
		}
		must(t, errors.Join(d.Close(t.Context()), wait()))
		more.Epoch++
	}
	want = linesOf(t, b.readLog(t))
	check(want)
	if b.checkpoint("log") == "" {
		t.Error("no log checkpoint")
	}
	c := b.client(t)
	before := c.reads()
	if log := c.readLog(t); len(linesOf(t, log)) != len(want) {
		t.Error("another log")
	}
	if n := c.reads() - before; n > 1000 {
		t.Errorf("a reader made %d requests", n)
	}

	// An entry that no merge replaces must exist, unless it is the last one.
	log := b.readLog(t)
	lost := slices.IndexFunc(log.Commits, func(c sink.Commit) bool { return c.Seq != log.Last() })
	must(t, b.Delete(strings.TrimPrefix(entryKey(int(log.Commits[lost].Seq)), "run/")))
	b.noCheckpoints(t)
	if _, err := sink.ReadLogIn(b, "", nil); err == nil {
		t.Error("a lost entry is not an error")
	}
	if r, err := sink.Verify(t.Context(), "", sink.VerifyOptions{Store: b}); err != nil || r.ProblemCount == 0 {
		t.Errorf("Verify: %v, %d problems", err, r.ProblemCount)
	}
}
