package sink_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// TestMergeRefused tests that readers check the ranges, sums and commits of a merge.
func TestMergeRefused(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	cfg := sink.Config{MergeAt: 3}
	smallCommits(t, from, cfg, 4, 1)
	d, err := sink.Create(from, cfg)
	if err == nil {
		_, err = d.MergeAll(t.Context())
	}
	must(t, err)
	smallCommits(t, from, cfg, 2, 2) // the log: 5 holds 1 to 4, then 6 and 7
	type Ranges = []sink.SeqRange
	for _, tt := range []struct {
		name, want string
		edit       func(c *sink.Commit)
		whole      bool // only a check of the shards finds it
	}{
		{"as it is", "", func(*sink.Commit) {}, false},
		{"a range too far", "must be in ascending order", func(c *sink.Commit) { c.Replaces = Ranges{{1, 5}} }, false},
		{"ranges that fall", "must be in ascending order", func(c *sink.Commit) { c.Replaces = Ranges{{3, 4}, {1, 2}} }, false},
		{"ranges that meet", "must be in ascending order", func(c *sink.Commit) { c.Replaces = Ranges{{1, 3}, {3, 4}} }, false},
		{"from 0", "must be in ascending order", func(c *sink.Commit) { c.Replaces = Ranges{{0, 4}} }, false},
		{"nothing", "missing, but entry 5 exists", func(c *sink.Commit) { c.Replaces = nil }, false},
		{"no commit", "contains no commits", func(c *sink.Commit) { c.Merged = nil }, false},
		{"a commit that it does not replace", "be replaced by the merge", func(c *sink.Commit) { c.Replaces = Ranges{{1, 3}} }, false},
		{"commits that fall", "must be in ascending order", func(c *sink.Commit) { c.Merged[0], c.Merged[1] = c.Merged[1], c.Merged[0] }, false},
		{"a sample too many", "samples and", func(c *sink.Commit) { c.Merged[1].Samples++ }, false},
		{"a sample of no commit", "samples and", func(c *sink.Commit) { c.Merged[3].Samples-- }, false},
		{"a token too many", "tokens", func(c *sink.Commit) { c.Merged[3].Tokens++ }, false},
		{"a newer version", "upgrade rollout", func(c *sink.Commit) { c.Version = sink.CommitVersion + 1 }, false},
		{"tokens of another commit", "tokens", func(c *sink.Commit) { c.Merged[0].Tokens--; c.Merged[3].Tokens++ }, true},
		{"samples of another commit", "tokens", func(c *sink.Commit) { c.Merged[0].Samples++; c.Merged[1].Samples-- }, true},
		{"samples twice", "is already done", func(c *sink.Commit) { c.Samples[len(c.Samples)-1].Key = c.Samples[0].Key }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := spoiled{t, t.TempDir()}
			must(t, os.CopyFS(s.dir, os.DirFS(from)))
			s.commit(5, tt.edit)
			_, err := sink.ReadLog(s.dir)
			if is := err == nil || !strings.Contains(err.Error(), tt.want); is != (tt.want == "" || tt.whole) {
				t.Errorf("ReadLog: %v, want %q", err, tt.want)
			}
			r, err := sink.Verify(t.Context(), s.dir, sink.VerifyOptions{})
			if err = errors.Join(append(r.Problems, err)...); tt.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Verify: %v, want %q", err, tt.want)
			}
		})
	}
	// Commits in two entries or in none: replaced commits came back, or a merge lacks some.
	for _, tt := range []struct {
		name, want string
		change     func(dir string) error
	}{
		{"the merge is gone", "missing, but entry 6 exists", func(dir string) error { return os.Remove(filepath.Join(dir, "_commits", entryName(5))) }},
		{"a commit is gone", "missing, but entry 7 exists", func(dir string) error { return os.Remove(filepath.Join(dir, "_commits", entryName(6))) }},
		{"replaced commits are back", "", func(dir string) error {
			return os.Rename(filepath.Join(dir, "replaced", "_commits", entryName(2)), filepath.Join(dir, "_commits", entryName(2)))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must(t, errors.Join(os.CopyFS(dir, os.DirFS(from)), tt.change(dir)))
			_, readErr := sink.ReadLog(dir)
			r, verifyErr := sink.Verify(t.Context(), dir, sink.VerifyOptions{})
			for _, err := range []error{readErr, errors.Join(append(r.Problems, verifyErr)...)} {
				if tt.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v, want %q", err, tt.want)
				}
			}
			if tt.want == "" {
				sameLogical(t, dir, logicalOf(t, from))
			}
		})
	}
}

func entryName(seq int) string { return fmt.Sprintf("%020d.json", seq) }

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

// TestMergeFails tests that a failed merge does not end the run, but that an error of the log does.
func TestMergeFails(t *testing.T) {
	t.Parallel()
	for _, entries := range []bool{false, true} {
		t.Run(fmt.Sprintf("entries=%t", entries), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			smallCommits(t, dir, sink.Config{}, 4, 1)
			want := logicalOf(t, dir)
			var merged atomic.Bool // a merged shard gets its name: no space for it, or for any later entry
			disk := hookFS{unsynced{sink.OS()}, func(op string, paths ...string) error {
				if op == "rename" && strings.Contains(filepath.Base(paths[1]), "-m-") {
					merged.Store(true)
				}
				if merged.Load() && (entries && op == "link" || !entries && op == "rename" && strings.Contains(filepath.Base(paths[1]), "-m-")) {
					return syscall.ENOSPC
				}
				return nil
			}}
			var said bytes.Buffer // used by one goroutine
			d := open(t, dir, sink.Config{CommitGroups: true, MergeAt: 3, FS: disk, Logger: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))})
			wait := start(t.Context(), t, d)
			if entries {
				if err := wait(); !errors.Is(err, sink.ErrFull) {
					t.Errorf("Run: %v, want ErrFull", err)
				}
			} else {
				for !merged.Load() {
					time.Sleep(time.Millisecond)
				}
				feed := &groupFeed{t: t, d: d, b: sinktest.NewBuilder(8), rng: rand.New(rand.NewPCG(4, 4))}
				for range 5 {
					feed.group(2, true)
				}
				if err := errors.Join(d.Close(t.Context()), wait()); err != nil || d.Stats().Samples != 10 {
					t.Errorf("%v, %+v", err, d.Stats())
				}
				if n := strings.Count(said.String(), "cannot merge small commits"); n != 1 || !strings.Contains(said.String(), "no space left") {
					t.Errorf("logged %d times:\n%s", n, said.String())
				}
			}
			if d.Stats().Merges > 0 {
				t.Errorf("%d merges", d.Stats().Merges)
			}
			d = open(t, dir, sink.Config{MergeAt: 3})
			if entries {
				sameLogical(t, dir, want)
			}
			if n, err := d.MergeAll(t.Context()); n == 0 || err != nil {
				t.Errorf("%d merges, %v", n, err)
			}
			if r := wholeVerify(t, dir); len(r.Orphans) > 0 {
				t.Errorf("orphans %q", r.Orphans)
			}
		})
	}
}
