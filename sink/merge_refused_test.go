package sink_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/sink"
)

// TestMergeRefused tests that readers check the ranges, sums and commits of a merge.
func TestMergeRefused(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	cfg := sink.Config{MergeAt: 3}
	smallCommits(t, from, cfg, 4, 1)
	_, err := open(t, from, cfg).MergeAll(t.Context())
	must(t, err)
	smallCommits(t, from, cfg, 2, 2) // the log: 5 holds 1 to 4, then 6 and 7
	merge := func(edit func(c *sink.Commit)) func(spoiled) { return func(s spoiled) { s.commit(5, edit) } }
	type Ranges = []sink.SeqRange
	for _, tt := range []struct {
		name, want string
		spoil      func(s spoiled)
		whole      bool // only a check of the shards finds it
	}{
		{"as it is", "", merge(func(*sink.Commit) {}), false},
		{"a range too far", "ascending order", merge(func(c *sink.Commit) { c.Replaces = Ranges{{1, 5}} }), false},
		{"ranges that fall", "ascending order", merge(func(c *sink.Commit) { c.Replaces = Ranges{{3, 4}, {1, 2}} }), false},
		{"ranges that meet", "ascending order", merge(func(c *sink.Commit) { c.Replaces = Ranges{{1, 3}, {3, 4}} }), false},
		{"from 0", "ascending order", merge(func(c *sink.Commit) { c.Replaces = Ranges{{0, 4}} }), false},
		{"nothing", "missing, but entry 5 exists", merge(func(c *sink.Commit) { c.Replaces = nil }), false},
		{"no commit", "contains no commits", merge(func(c *sink.Commit) { c.Merged = nil }), false},
		{"a commit that it does not replace", "in ascending order and replace them", merge(func(c *sink.Commit) { c.Replaces = Ranges{{1, 3}} }), false},
		{"commits that fall", "ascending order", merge(func(c *sink.Commit) { c.Merged[0], c.Merged[1] = c.Merged[1], c.Merged[0] }), false},
		{"a sample too many", "samples and", merge(func(c *sink.Commit) { c.Merged[1].Samples++ }), false},
		{"a sample of no commit", "samples and", merge(func(c *sink.Commit) { c.Merged[3].Samples-- }), false},
		{"a token too many", "tokens", merge(func(c *sink.Commit) { c.Merged[3].Tokens++ }), false},
		{"a newer version", "upgrade rollout", merge(func(c *sink.Commit) { c.Version = sink.CommitVersion + 1 }), false},
		{"tokens of another commit", "tokens", merge(func(c *sink.Commit) { c.Merged[0].Tokens--; c.Merged[3].Tokens++ }), true},
		{"samples of another commit", "tokens", merge(func(c *sink.Commit) { c.Merged[0].Samples++; c.Merged[1].Samples-- }), true},
		{"samples twice", "was already committed", merge(func(c *sink.Commit) { c.Samples[len(c.Samples)-1].Key = c.Samples[0].Key }), true},
		// Commits in two entries or in none: replaced commits came back, or a merge lacks some.
		{"the merge is gone", "missing, but entry 6 exists", func(s spoiled) { must(s.t, os.Remove(s.entry(5))) }, false},
		{"a commit is gone", "missing, but entry 7 exists", func(s spoiled) { must(s.t, os.Remove(s.entry(6))) }, false},
		{"a replaced commit is back", "", func(s spoiled) {
			must(s.t, os.Rename(filepath.Join(s.dir, "replaced", "_commits", filepath.Base(s.entry(2))), s.entry(2)))
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := spoiled{t, t.TempDir()}
			must(t, os.CopyFS(s.dir, os.DirFS(from)))
			tt.spoil(s)
			_, err := sink.ReadLog(s.dir)
			if is := err == nil || !strings.Contains(err.Error(), tt.want); is != (tt.want == "" || tt.whole) {
				t.Errorf("ReadLog: %v, want %q", err, tt.want)
			}
			r, err := sink.Verify(t.Context(), s.dir, sink.VerifyOptions{})
			if err = errors.Join(append(r.Problems, err)...); tt.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Verify: %v, want %q", err, tt.want)
			}
			if tt.want == "" {
				sameLogical(t, s.dir, logicalOf(t, from))
			}
		})
	}
}

// TestMergeKeepsMeta tests that rows of shards with different key-values are not merged.
func TestMergeKeepsMeta(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := func(digest string) sink.Config {
		return sink.Config{MergeAt: 2, Meta: map[string]string{"rollout.config_sha256": digest}}
	}
	for i, digest := range []string{"a", "b", "c", "a"} {
		smallCommits(t, dir, cfg(digest), 3, uint64(i))
	}
	metas := func() (all []string) {
		log := readLog(t, dir)
		for s := range log.Shards(sink.KindData) {
			meta, err := log.Meta(s)
			must(t, err)
			for range s.Rows {
				all = append(all, meta["rollout.config_sha256"])
			}
		}
		return all
	}
	want := metas()
	d := open(t, dir, cfg("b"))
	if n, err := d.MergeAll(t.Context()); n < 4 || err != nil {
		t.Errorf("%d merges, %v", n, err)
	}
	if got := metas(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	wholeVerify(t, dir)
}

// TestMergeCannotCommit tests that an error of the log during a merge ends the run, and that the next run
// merges. TestMergeIsTriedAgain tests errors of shards, which do not end it.
func TestMergeCannotCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallCommits(t, dir, sink.Config{}, 4, 1)
	want := logicalOf(t, dir)
	merged := false // a merged shard has its name; used by one goroutine
	disk := hookFS{unsynced{sink.OS()}, func(op string, paths ...string) error {
		merged = merged || op == "rename" && strings.Contains(filepath.Base(paths[1]), "-m-")
		if merged && op == "link" {
			return syscall.ENOSPC
		}
		return nil
	}}
	d := open(t, dir, sink.Config{CommitGroups: true, MergeAt: 3, FS: disk})
	if err := d.Run(t.Context()); !errors.Is(err, sink.ErrFull) || d.Stats().Merges > 0 {
		t.Errorf("Run: %v, %d merges, want ErrFull and none", err, d.Stats().Merges)
	}
	d = open(t, dir, sink.Config{MergeAt: 3})
	sameLogical(t, dir, want)
	if n, err := d.MergeAll(t.Context()); n == 0 || err != nil {
		t.Errorf("%d merges, %v", n, err)
	}
	verify(t, dir)
}
