package sink_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// unsynced is the operating system's file system without syncs, for speed.
type unsynced struct{ sink.FS }

type unsyncedFile struct{ sink.File }

func (unsyncedFile) Sync() error           { return nil }
func (unsynced) SyncDir(name string) error { _, err := os.Stat(name); return err }

func (u unsynced) Create(name string) (sink.File, error) {
	f, err := u.FS.Create(name)
	return unsyncedFile{f}, err
}

// TestMergeUnderReaders tests that readers of all kinds see every sample once, in commit order and bit
// for bit, while commits are merged and replaced files deleted.
func TestMergeUnderReaders(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := open(t, dir, sink.Config{Format: format, CommitGroups: true, MergeAt: 2, FS: unsynced{sink.OS()}})
			d.SetSyncEvery(0)
			wait := start(t.Context(), t, d)
			var ended atomic.Bool
			var readers sync.WaitGroup
			read := func(name string, round func() (n int, err error)) {
				readers.Go(func() {
					rounds, last := 0, 0
					for more := true; more; rounds++ {
						more = !ended.Load() // one more round after the end
						n, err := round()
						if err != nil {
							t.Errorf("%s: %v", name, err)
							return
						}
						if n < last {
							t.Errorf("%s: %d, and %d before", name, n, last)
						}
						last = n
					}
					t.Logf("%s: %d rounds to %d", name, rounds, last)
				})
			}
			type place struct {
				seq int64
				key string
			}
			add := func(to []place, c *sink.Commit) []place {
				for _, s := range c.Samples {
					to = append(to, place{c.Seq, s.Key})
				}
				return to
			}
			var mu sync.Mutex
			var order []place // of the follower; the reference for all others
			follower, err := sink.ReadLogIn(nil, dir, func(c *sink.Commit) {
				mu.Lock()
				defer mu.Unlock()
				order = add(order, c)
			})
			must(t, err)
			read("Follow", func() (int, error) { err := follower.Follow(); return len(order), err })
			kept := readLog(t, dir)
			read("Originals", func() (int, error) {
				err := kept.Follow()
				n := 0
				last := int64(0)
				for c := range kept.Originals() {
					if c.Seq <= last {
						err = errors.Join(err, fmt.Errorf("commit %d after %d", c.Seq, last))
					}
					last = c.Seq
					n += len(c.Samples)
				}
				return n, err
			})
			read("Verify", func() (int, error) {
				r, err := sink.Verify(t.Context(), dir, sink.VerifyOptions{})
				if r.ProblemCount > 0 {
					return 0, errors.Join(r.Problems...)
				}
				return int(r.Samples), err
			})
			read("Stored", func() (int, error) {
				log, err := sink.ReadLog(dir)
				if err != nil {
					return 0, err
				}
				time.Sleep(30 * time.Millisecond) // let the log get older
				var want []place
				for c := range log.Originals() {
					want = add(want, c)
				}
				at := -1
				for s, err := range log.Stored() {
					if err != nil {
						return 0, err
					}
					if at < 0 || want[at].key != s.Key {
						at++
					}
					if want[at].key != s.Key {
						return 0, fmt.Errorf("sample %d is %s, but the log has %s", at, s.Key, want[at].key)
					}
				}
				return at + 1, errors.Join(log.CheckSizes(), log.CheckDigests(t.Context(), nil, func(e error) { err = errors.Join(err, e) }), err)
			})
			read("HasRows", func() (int, error) { _, err := sink.HasRows(dir); return 0, err })
			read("ReadLedger", func() (int, error) { l, err := sink.ReadLedger(nil, dir); return l.Len(), err })
			acknowledged := 0
			read("Acknowledge", func() (int, error) {
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if len(order) > 0 {
					acknowledged = max(acknowledged, int(order[rand.IntN(len(order))].seq))
				}
				return acknowledged, d.Acknowledge(sink.Cursor{RunID: "run", Seq: int64(acknowledged)})
			})
			b, groups := sinktest.NewBuilder(8), 100
			if testing.Short() {
				groups = 40
			}
			var all []*tokenize.Sample
			for id := range groups {
				list := group(b, id, 1+id%3)
				commitAll(t, d, list...)
				all = append(all, list...)
			}
			ended.Store(true)
			readers.Wait()
			must(t, errors.Join(d.Close(context.Background()), wait()))
			if d.Stats().Merges == 0 {
				t.Error("no merge")
			}
			t.Logf("%d commits, %d merges", d.Stats().Commits, d.Stats().Merges)
			var at []place
			for c := range readLog(t, dir).Originals() {
				at = add(at, c)
			}
			if !slices.Equal(at, order) {
				t.Errorf("a follower saw\n%v\nthe log has\n%v", order, at)
			}
			compareDataset(t, dir, all)
			wholeVerify(t, dir)
		})
	}
}

// TestManySmallCommits tests that a day of small commits leaves few files.
func TestManySmallCommits(t *testing.T) {
	t.Parallel()
	n := 1500 // with 20,000: at most 219 files, 21 at the end
	if testing.Short() {
		n = 1000
	}
	dir := t.TempDir()
	var last atomic.Int64
	d := open(t, dir, sink.Config{
		CommitGroups: true, FS: unsynced{sink.OS()},
		Events: sink.Events{Committed: func(c sink.Commit) { last.Store(c.Seq) }},
	})
	d.SetSyncEvery(0)
	wait := start(t.Context(), t, d)
	count := func() (n int) {
		names, err := filepath.Glob(filepath.Join(dir, "*", "*"))
		more, err2 := filepath.Glob(filepath.Join(dir, "replaced", "*", "*"))
		must(t, errors.Join(err, err2))
		return len(names) + len(more)
	}
	b, most := sinktest.NewBuilder(8), 0
	for i := range n {
		commitAll(t, d, grouping(b.Sample(b.Row(3, 5)), i, 1, 0))
		must(t, d.Acknowledge(sink.Cursor{RunID: "run", Seq: last.Load() + 1}))
		if i%100 == 99 {
			most = max(most, count())
		}
	}
	must(t, errors.Join(d.Close(context.Background()), wait()))
	t.Logf("%d commits, %d merges, at most %d files, %d at the end", n, d.Stats().Merges, most, count())
	// The commits come as fast as possible, so merges are late on a busy machine: some 220 files
	// alone, 523 beside other tests. Without merges there are two per commit.
	if most > n/2 {
		t.Errorf("%d files", most)
	}
	if r := wholeVerify(t, dir); r.Samples != int64(n) {
		t.Errorf("%d samples, want %d", r.Samples, n)
	}
}

// TestReplacedFilesStay tests that replaced files stay until a cursor passes them, or ten minutes.
func TestReplacedFilesStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		cfg := sink.Config{MergeAt: 3, CommitGroups: true, Format: sink.Arrow}
		smallShards(t, dir, 9)
		left := func() (n int) {
			synctest.Wait()
			names, err := filepath.Glob(filepath.Join(dir, "replaced", "_commits", "*"))
			shards, err2 := filepath.Glob(filepath.Join(dir, "replaced", "data", "*"))
			must(t, errors.Join(err, err2))
			if len(names) == 0 && len(shards) > 0 {
				t.Fatalf("only shards in replaced/: %q", shards)
			}
			return len(names)
		}
		run := func() (d *sink.Dataset, end func()) {
			d = open(t, dir, cfg)
			wait := start(t.Context(), t, d)
			synctest.Wait()
			return d, func() { must(t, errors.Join(d.Close(t.Context()), wait())) }
		}
		d, end := run()
		for _, at := range []time.Duration{0, 9 * time.Minute} {
			if time.Sleep(at); left() != 9 || d.Stats().Merges != 1 {
				t.Fatalf("%v: %d entries in replaced/, %d merges", at, left(), d.Stats().Merges)
			}
		}
		end()
		if d, end = run(); left() != 9 || d.Stats().Merges > 0 {
			t.Fatalf("continued: %d entries in replaced/, %d merges", left(), d.Stats().Merges)
		}
		if time.Sleep(time.Minute); left() != 0 {
			t.Errorf("%d entries in replaced/ after ten minutes", left())
		}
		end()
		smallShards(t, dir, 4) // 11 to 14
		if d, end = run(); left() != 4 {
			t.Fatalf("%d entries in replaced/", left())
		}
		for _, tt := range []struct {
			seq  int64
			left int
		}{{11, 4}, {13, 2}, {14, 1}, {15, 0}} {
			must(t, d.Acknowledge(sink.Cursor{RunID: "run", Seq: tt.seq}))
			if time.Sleep(time.Hour); left() != tt.left {
				t.Errorf("acknowledged up to %d: %d entries in replaced/, want %d", tt.seq, left(), tt.left)
			}
		}
		end()
		wholeVerify(t, dir)
	})
}
