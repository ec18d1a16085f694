package sink_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// A badDisk fails in selected ways.
type badDisk struct {
	full  atomic.Bool // no merged shard gets its name
	stuck atomic.Bool // nothing can be moved to replaced/
	bad   string      // path of a file that cannot be read
}

func (d *badDisk) fail(op string, paths ...string) error {
	to := paths[len(paths)-1]
	switch {
	case op == "rename" && (d.full.Load() && strings.Contains(filepath.Base(to), "-m-") || d.stuck.Load() && strings.Contains(to, "replaced")):
		return &os.LinkError{Op: op, Old: paths[0], New: to, Err: syscall.ENOSPC}
	case op == "open" && d.bad != "" && strings.HasSuffix(filepath.ToSlash(to), d.bad):
		return &fs.PathError{Op: op, Path: to, Err: syscall.EIO}
	}
	return nil
}

// smallShards makes n commits of one small sample each. The shards are Arrow: the pools of the Parquet
// decoders must not leave a bubble.
func smallShards(t *testing.T, dir string, n int) {
	t.Helper()
	b := sinktest.NewBuilder(uint64(20 + n))
	for range n {
		sinktest.Write(t, dir, sink.Config{Format: sink.Arrow}, alone([]*tokenize.Sample{b.Sample(b.Row(3, 5))}))
	}
}

// merging runs a dataset of n small commits in a bubble. prepare receives the disk and the shards' paths.
func merging(t *testing.T, n int, prepare func(disk *badDisk, dir string, shards []string), live func(d *sink.Dataset, disk *badDisk, said *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		smallShards(t, dir, n)
		log := readLog(t, dir)
		var shards []string
		for s := range log.Shards(sink.KindData) {
			shards = append(shards, s.Path)
		}
		disk, said := &badDisk{}, &bytes.Buffer{}
		prepare(disk, dir, shards)
		bad := disk.bad
		disk.bad = "" // Create can check it
		d := open(t, dir, sink.Config{
			Format: sink.Arrow, CommitGroups: true, MergeAt: 3, FS: hookFS{sink.OS(), disk.fail},
			Logger: slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
		disk.bad = bad
		wait := start(t.Context(), t, d)
		synctest.Wait()
		live(d, disk, said)
		must(t, errors.Join(d.Close(context.Background()), wait()))
	})
}

func wantMerges(t *testing.T, d *sink.Dataset, when string, merges, failed int64) {
	t.Helper()
	synctest.Wait()
	if s := d.Stats(); s.Merges != merges || s.MergeErrors != failed {
		t.Errorf("%s: %d merges and %d errors, want %d and %d", when, s.Merges, s.MergeErrors, merges, failed)
	}
}

// TestMergeIsTriedAgain tests that a failed merge is retried after a minute, and at last once per hour.
// One cause is logged once, and merging continues when the cause is gone.
func TestMergeIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"write", "move"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			merges := int64(0)
			merging(t, 4, func(disk *badDisk, _ string, _ []string) {
				disk.full.Store(what == "write")
				disk.stuck.Store(what == "move")
				if what == "move" {
					merges = 1 // the merge succeeds, but its sources cannot be moved
				}
			}, func(d *sink.Dataset, disk *badDisk, said *bytes.Buffer) {
				wantMerges(t, d, "at first", merges, 1)
				time.Sleep(59 * time.Second)
				wantMerges(t, d, "after 59 s", merges, 1)
				time.Sleep(2 * time.Second)
				wantMerges(t, d, "after a minute", merges, 2)
				time.Sleep(2 * time.Minute)
				wantMerges(t, d, "after three", merges, 3)
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if n := d.Stats().MergeErrors; n < 24 || n > 32 {
					t.Errorf("%d tries in a day", n)
				}
				if n := strings.Count(said.String(), "cannot merge small commits"); n != 1 || !strings.Contains(said.String(), "no space left") {
					t.Errorf("logged %d times, want once:\n%s", n, said.String())
				}
				disk.full.Store(false)
				disk.stuck.Store(false)
				before := d.Stats().MergeErrors
				time.Sleep(2 * time.Hour)
				wantMerges(t, d, "with space", 1, before)
			})
		})
	}
}

// TestMergeRetryBeginsAnew tests that a failed merge does not end the run, and that after a successful move
// the next error is logged and waits a minute.
func TestMergeRetryBeginsAnew(t *testing.T) {
	t.Parallel()
	merging(t, 4, func(disk *badDisk, _ string, _ []string) { disk.stuck.Store(true) }, func(d *sink.Dataset, disk *badDisk, said *bytes.Buffer) {
		time.Sleep(24 * time.Hour)
		disk.stuck.Store(false)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		failed := d.Stats().MergeErrors
		disk.full.Store(true)
		b := sinktest.NewBuilder(4)
		for i := range 3 { // the run continues
			commitAll(t, d, grouping(b.Sample(b.Row(3, 5)), i, 1, 0))
		}
		wantMerges(t, d, "at first", 1, failed+1)
		time.Sleep(61 * time.Second)
		wantMerges(t, d, "after a minute", 1, failed+2)
		if n := strings.Count(said.String(), "cannot merge small commits"); n != 2 {
			t.Errorf("logged %d times, want twice:\n%s", n, said.String())
		}
	})
}

// TestDamagedEntryIsNotMerged tests that a damaged or unreadable entry is skipped, and others merge.
func TestDamagedEntryIsNotMerged(t *testing.T) {
	t.Parallel()
	for _, damage := range []bool{true, false} {
		dir := ""
		merging(t, 8, func(disk *badDisk, at string, shards []string) {
			if dir = at; !damage {
				disk.bad = shards[3]
				return
			}
			path := filepath.Join(dir, shards[3])
			body := readFile(t, path)
			body[len(body)/2] ^= 1
			must(t, os.WriteFile(path, body, 0o600))
		}, func(d *sink.Dataset, _ *badDisk, said *bytes.Buffer) {
			want := int64(1)
			if !damage {
				want = 3
				wantMerges(t, d, "at first", 0, 1)
				time.Sleep(4 * time.Minute)
			}
			wantMerges(t, d, "at last", 2, want)
			if n := strings.Count(said.String(), "excluded from merges"); n != 1 || !strings.Contains(said.String(), "seq=4") {
				t.Errorf("damage %v: logged %d times, want once:\n%s", damage, n, said.String())
			}
			time.Sleep(2 * time.Hour)
			wantMerges(t, d, "later", 2, want)
			log, err := sink.ReadLog(dir)
			if err != nil || len(log.Commits) != 3 {
				t.Errorf("%d entries count, want 3; %v", len(log.Commits), err)
			}
		})
	}
}
