package fleet_test

import (
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// everywhere runs a test with a folder in fake time, and with a bucket without and with faults.
func everywhere(t *testing.T, test func(t *testing.T, client func() store.Store)) {
	t.Helper()
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			objects := folder(t)
			test(t, func() store.Store { return objects })
		})
	})
	for _, share := range []float64{0, 0.2} {
		t.Run(fmt.Sprintf("bucket/faults=%v", share), func(t *testing.T) {
			t.Parallel()
			b := newBucket(t)
			b.proxy.Plan(storetest.Random(7, share, storetest.Answer(500, "InternalError"), storetest.Answer(503, "SlowDown"),
				storetest.Answer(409, "ConditionalRequestConflict"), storetest.Drop, storetest.Lose, storetest.Truncate))
			test(t, func() store.Store { return b.client(t) })
		})
	}
}

func slots(n int) func(*fleet.Config) {
	return func(c *fleet.Config) { c.Slots = func() int { return n } }
}

// One worker collects a whole fleet, one partition at a time.
func TestWorker(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client func() store.Store) {
		t.Helper()
		objects := client()
		f := plan(t, objects, 4, 10, 2)
		w := start(t, objects, f, t.TempDir())
		w.work(w.Tasks(t.Context()))
		w.close()
		committed, moved := w.results()
		is(t, "committed", committed, 20)
		is(t, "moved", moved, 0)
		is(t, "samples in Stats", w.Stats().Samples, 20)
		check(t, objects, f)
		entries, err := os.ReadDir(filepath.Join(w.dir, "partitions"))
		must(t, err)
		is(t, "partitions in the spool", len(entries), 0)
	})
}

// Each partition has exactly one winner if several workers claim all of them at the same time.
func TestClaimRace(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client func() store.Store) {
		t.Helper()
		f := plan(t, client(), 6, 30, 1)
		var all []*process
		var wg sync.WaitGroup
		for range 3 {
			w := start(t, client(), f, t.TempDir(), slots(1000))
			all = append(all, w)
			wg.Go(func() { w.work(w.Tasks(t.Context())) })
		}
		wg.Wait()
		total := 0
		for _, w := range all {
			w.close()
			committed, moved := w.results()
			total += committed
			is(t, "moved", moved, 0)
		}
		is(t, "committed", total, 30)
		check(t, client(), f)
		for p := range f.Partitions {
			is(t, fmt.Sprintf("claims of partition %d", p), len(claims(t, client(), p)), 1)
		}
	})
}

// A worker whose claim succeeded but whose answer was lost has the partition.
func TestLostAnswerToClaim(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	objects := b.client(t)
	f := plan(t, objects, 1, 5, 1)
	var lost atomic.Int64
	b.proxy.Plan(func(r *http.Request) storetest.Fault {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "_commits/00000000000000000001.json") && lost.Add(1) <= 3 {
			return storetest.Lose
		}
		return nil
	})
	w := start(t, objects, f, t.TempDir())
	w.work(w.Tasks(t.Context()))
	w.close()
	if n := lost.Load(); n < 2 {
		t.Errorf("the claim was sent %d times", n)
	}
	check(t, objects, f)
	is(t, "claims", len(claims(t, objects, 0)), 1)
}

// A worker that ends gracefully hands its partitions over at once: the next worker does not wait until the
// first one counts as dead.
func TestHandOver(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client func() store.Store) {
		t.Helper()
		f := plan(t, client(), 2, 10, 2)
		first := start(t, client(), f, t.TempDir(), slots(1000))
		var got []*collector.Task
		next, stop := iter.Pull2(first.Tasks(t.Context()))
		for range f.Partitions[0].Tasks + f.Partitions[1].Tasks {
			task, err, _ := next()
			must(t, err)
			got = append(got, task)
		}
		for _, task := range got[:3] {
			must(t, first.append(task, 0))
		}
		stop()
		first.close()
		committed, _ := first.results()
		is(t, "committed by the first worker", committed, 3)

		began := time.Now()
		second := start(t, client(), f, t.TempDir())
		second.work(second.Tasks(t.Context()))
		second.close()
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("the second worker took %v", took)
		}
		committed, _ = second.results()
		is(t, "committed by the second worker", committed, 17)
		check(t, client(), f)
	})
}

// A worker that is killed and started again on the same machine commits the samples of its write-ahead
// log, and continues with its partitions at once.
func TestRestart(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client func() store.Store) {
		t.Helper()
		f := plan(t, client(), 3, 12, 2)
		dir := t.TempDir()
		killed := start(t, client(), f, dir, slots(1000))
		next, stop := iter.Pull2(killed.Tasks(t.Context()))
		for i := range 12 {
			task, err, _ := next()
			must(t, err)
			if i%2 == 0 {
				must(t, killed.append(task, 1))
			}
		}
		killed.die()
		stop()

		began := time.Now()
		again := start(t, client(), f, dir)
		again.work(again.Known())
		again.work(again.Tasks(t.Context()))
		again.close()
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("the worker waited %v for its own claims", took)
		}
		committed, _ := again.results()
		is(t, "samples of the second process", committed, 18)
		check(t, client(), f)
		for p := range f.Partitions {
			if c := claims(t, client(), p); len(c) != 2 {
				t.Errorf("claims of partition %d: %q", p, c)
			}
		}
	})
}

// The claims of a process that has lost its local files end with the process.
func TestRestartWithoutFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects, dir := folder(t), t.TempDir()
		f := plan(t, objects, 3, 12, 2)
		killed := start(t, objects, f, dir, slots(1000))
		next, stop := iter.Pull2(killed.Tasks(t.Context()))
		for range 12 {
			task, err, _ := next()
			must(t, err)
			must(t, killed.append(task, 0))
		}
		killed.die()
		stop()
		must(t, os.RemoveAll(filepath.Join(dir, "partitions")))
		began := time.Now()
		again := start(t, objects, f, dir)
		again.work(again.Tasks(t.Context()))
		again.close()
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("the worker waited %v for its own claims", took)
		}
		check(t, objects, f)
	})
}

// If another worker has claimed a partition in the meantime, the samples in the spool are dropped.
func TestRestartAfterLoss(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client func() store.Store) {
		t.Helper()
		for _, sealed := range []bool{true, false} {
			objects := client().Sub(fmt.Sprint(sealed))
			f := plan(t, objects, 1, 4, 1)
			dir := t.TempDir()
			killed := start(t, objects, f, dir)
			next, stop := iter.Pull2(killed.Tasks(t.Context()))
			task, err, _ := next()
			must(t, err)
			must(t, killed.append(task, 0))
			killed.die()
			stop()
			must(t, objects.Delete("workers/"+killed.Name()+".json"))
			must(t, objects.Put("workers/"+killed.Name()+".json", []byte(`{"counter":9,"claims":{"0":{"epoch":1,"state":"left"}}}`)))

			other := start(t, objects, f, t.TempDir())
			list, end := iter.Pull2(other.Tasks(t.Context()))
			var tasks []*collector.Task
			for range 4 {
				task, err, _ := list()
				must(t, err)
				tasks = append(tasks, task)
			}
			finish := func() {
				for _, task := range tasks {
					must(t, other.append(task, 0))
				}
				_, _, more := list()
				is(t, "more tasks", more, false)
				end()
				other.close()
			}
			if sealed {
				finish()
			}
			again := start(t, objects, f, dir)
			for range again.Known() {
				t.Error("the restarted worker has tasks")
			}
			if !sealed { // otherwise the log has the sample
				again.logs.has(t, "msg=dropped partition=0 samples=1")
				finish()
			}
			for range again.Tasks(t.Context()) {
				t.Error("the restarted worker gets tasks")
			}
			again.close()
			check(t, objects, f)
		}
	})
}

// A worker skips a partition whose objects are damaged, whether it is new, left by another worker or in the
// worker's own spool. It collects all others, and reports each damaged partition once.
func TestDamagedPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects, dir := folder(t), t.TempDir()
		f := plan(t, objects, 5, 30, 1)
		first := start(t, objects, f, dir, slots(1000))
		next, stop := iter.Pull2(first.Tasks(t.Context()))
		waiting := -1 // a partition with a sample in the spool
		for range 30 {
			task, err, _ := next()
			must(t, err)
			if p := fleet.PartitionOf(task.ID, 5); waiting < 0 {
				waiting = p
				must(t, first.append(task, 0))
			}
		}
		first.die()
		stop()
		broken := map[int]string{}
		for i, p := range []int{waiting, (waiting + 1) % 5, (waiting + 2) % 5} {
			name := fleet.PartitionName(p) + "/_commits/00000000000000000001.json"
			if i > 0 {
				name = fmt.Sprintf("tasks/%s/%04d.jsonl.zst", f.ID, p)
			}
			broken[p] = name
			if i < 2 {
				must(t, objects.Put(name, []byte("{")))
			} else {
				must(t, objects.Delete(name))
			}
		}
		var mu sync.Mutex
		var found []string
		for _, spool := range []string{dir, t.TempDir()} {
			found = nil
			w := start(t, objects, f, spool, func(c *fleet.Config) {
				c.Damaged = func(err error) {
					mu.Lock()
					defer mu.Unlock()
					found = append(found, err.Error())
				}
			})
			w.work(w.Known())
			w.work(w.Tasks(t.Context()))
			w.close()
			is(t, "partitions that are not sealed", w.Unsealed(), 3)
			is(t, "reports", len(found), 3)
			for p, name := range broken {
				if !strings.Contains(strings.Join(found, "\n"), name) || !strings.Contains(strings.Join(found, "\n"), fleet.PartitionName(p)) {
					t.Errorf("no report of %s: %q", name, found)
				}
			}
		}
		for p := range f.Partitions {
			if broken[p] == "" {
				end, err := sink.ReadEnd(fleet.Dataset(objects, p), sink.End{})
				must(t, err)
				is(t, "sealed", end.Sealed, true)
			}
		}
		segments, err := os.ReadDir(filepath.Join(dir, fleet.PartitionName(waiting), "wal"))
		must(t, err)
		is(t, "segments of the damaged partition in the spool", len(segments), 1)
	})
}

func TestUnknownPartition(t *testing.T) {
	t.Parallel()
	objects, dir := folder(t), t.TempDir()
	f := plan(t, objects, 2, 4, 1)
	must(t, os.MkdirAll(filepath.Join(dir, "partitions", "0002"), 0o777))
	_, err := fleet.Open(fleet.Config{Store: objects, Fleet: f, Dir: dir})
	is(t, "code of an unknown partition", exit.Code(err), exit.Folder)
}

// A worker that starts late learns from the heartbeats of the others what is claimed and what is sealed. It
// does not ask for the logs of all partitions.
func TestLateWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := &slowStore{Store: folder(t), requests: map[string]int{}}
		f := plan(t, objects, 30, 200, 1)
		first := start(t, objects, f, t.TempDir(), slots(50))
		next, stop := iter.Pull2(first.Tasks(t.Context()))
		defer stop()
		begin := func(n int) {
			for range n {
				task, err, ok := next()
				if err != nil || !ok {
					t.Fatal(err, ok)
				}
				must(t, first.append(task, 0))
			}
		}
		var room atomic.Int64
		later := func(c *fleet.Config) { c.Slots = func() int { return int(room.Load()) } }
		idle := start(t, objects, f, t.TempDir(), later) // before the first claim
		begin(80)
		time.Sleep(20 * time.Second) // heartbeats come
		objects.take()
		late := start(t, objects, f, t.TempDir(), later)
		n := objects.take()
		is(t, "lists of a start", n["list workers"]+n["list _commits"], 1)
		var waiting sync.WaitGroup
		for _, w := range []*process{late, idle} {
			waiting.Go(func() {
				for range w.Tasks(t.Context()) {
					t.Error("a waiting worker has a task")
				}
			})
		}
		begin(120)
		_, _, more := next()
		is(t, "more tasks", more, false)
		first.close()
		time.Sleep(11 * time.Second) // since the last look
		objects.take()
		room.Store(1000)
		waiting.Wait()
		late.close()
		idle.close()
		n = objects.take()
		is(t, "requests for logs", n["list _commits"]+n["get _commits"], 2) // one by each
		check(t, objects.Store, f)
	})
}
