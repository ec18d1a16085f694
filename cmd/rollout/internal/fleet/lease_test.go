package fleet_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// A worker whose clock stops loses its partition. It does not notice, and its samples are refused and
// counted as moved, whether they were accepted before or after the loss.
func TestPausedWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := folder(t)
		f := plan(t, objects, 1, 10, 1)
		c := &clock{}
		paused := start(t, objects, f, t.TempDir(), func(cfg *fleet.Config) { cfg.Clock = c })
		next, stop := iter.Pull2(paused.Tasks(t.Context()))
		defer stop()
		tasks := take(t, next, 10)
		must(t, paused.append(tasks[0], 0))
		time.Sleep(25 * time.Second) // heartbeats come
		c.stop(true)

		other := start(t, objects, f, t.TempDir())
		began := time.Now()
		var took time.Duration
		other.work(func(yield func(*collector.Task, error) bool) {
			for task, err := range other.Tasks(t.Context()) {
				if took == 0 {
					took = time.Since(began)
				}
				if !yield(task, err) {
					return
				}
			}
		})
		if took < 60*time.Second || took > 80*time.Second {
			t.Errorf("the other worker took over after %v", took)
		}
		other.close()

		must(t, paused.Admit(t.Context(), collector.Attempt{Task: tasks[1]})) // its clock says that its heartbeat is fresh
		must(t, paused.append(tasks[1], 0))                                   // the write-ahead log is local
		paused.close()
		committed, moved := paused.results()
		is(t, "committed by the paused worker", committed, 0)
		is(t, "moved", moved, 2)
		if err := paused.append(tasks[2], 0); !errors.Is(err, collector.ErrMoved) {
			t.Errorf("Append after the loss = %v", err)
		}
		paused.logs.has(t, "msg=lost partition=0 epoch=1 samples=2")
		check(t, objects, f)
		is(t, "claims", len(claims(t, objects, 0)), 2)
	})
}

// A partition can be lost at any moment of an Append.
func TestLostDuringAppend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := folder(t)
		f := plan(t, objects, 1, 200, 1)
		c := &clock{}
		paused := start(t, objects, f, t.TempDir(), func(cfg *fleet.Config) { cfg.Clock, cfg.Sink.MaxShardAge = c, time.Second })
		next, stop := iter.Pull2(paused.Tasks(t.Context()))
		defer stop()
		tasks := take(t, next, 200)
		c.stop(true)
		other := start(t, objects, f, t.TempDir())
		other.work(other.Tasks(t.Context()))
		other.close()
		for i, task := range tasks {
			if err := paused.append(task, 0); err != nil && !errors.Is(err, collector.ErrMoved) {
				t.Fatalf("sample %d: %v", i, err)
			}
		}
		paused.close()
		_, moved := paused.results()
		is(t, "moved", moved, 200)
		check(t, objects, f)
	})
}

// A worker that was suspended notices after its first heartbeat what it has lost. Until then it starts no
// attempts. It continues with what it still has.
func TestSuspendedWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := &lateStore{Store: folder(t)}
		f := plan(t, objects.Store, 2, 10, 1)
		suspended := start(t, objects, f, t.TempDir(), slots(1000))
		next, stop := iter.Pull2(suspended.Tasks(t.Context()))
		defer stop()
		tasks := take(t, next, 10)
		objects.refuse(allRequests)
		time.Sleep(29 * time.Second)
		must(t, suspended.Admit(t.Context(), collector.Attempt{Task: tasks[0]}))
		time.Sleep(2 * time.Second)
		short, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		is(t, "Admit without a heartbeat", errors.Is(suspended.Admit(short, collector.Attempt{Task: tasks[0]}), context.DeadlineExceeded), true)

		other := start(t, objects.Store, f, t.TempDir()) // with one slot: one partition at a time
		another, stopOther := iter.Pull2(other.Tasks(t.Context()))
		defer stopOther()
		taken, err, _ := another()
		must(t, err)
		lost := fleet.PartitionOf(taken.ID, 2)
		objects.refuse(nil)
		for _, task := range tasks {
			err := suspended.Admit(t.Context(), collector.Attempt{Task: task})
			is(t, "moved", errors.Is(err, collector.ErrMoved), fleet.PartitionOf(task.ID, 2) == lost)
			if err == nil {
				must(t, suspended.append(task, 0))
			}
		}
		must(t, other.append(taken, 0))
		for range f.Partitions[lost].Tasks - 1 {
			task, err, _ := another()
			must(t, err)
			must(t, other.append(task, 0))
		}
		_, _, more := another()
		is(t, "more tasks of the other worker", more, false)
		_, _, more = next()
		is(t, "more tasks of the suspended worker", more, false)
		suspended.close()
		other.close()
		committed, _ := suspended.results()
		is(t, "committed by the suspended worker", committed, f.Partitions[1-lost].Samples)
		check(t, objects.Store, f)
	})
}

// While the store is away, no worker loses a partition: the time of the outage does not count.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := &lateStore{Store: folder(t)}
		f := plan(t, gate.Store, 1, 10, 1)
		first := start(t, gate, f, t.TempDir())
		next, stop := iter.Pull2(first.Tasks(t.Context()))
		defer stop()
		task, err, _ := next()
		must(t, err)
		second := start(t, gate, f, t.TempDir())
		done := make(chan struct{})
		go func() {
			defer close(done)
			second.work(second.Tasks(t.Context()))
		}()
		time.Sleep(35 * time.Second)
		gate.refuse(allRequests)
		time.Sleep(5 * time.Minute)
		gate.refuse(nil)
		time.Sleep(time.Minute)
		must(t, first.append(task, 0))
		for range 9 {
			task, err, _ := next()
			must(t, err)
			must(t, first.append(task, 0))
		}
		<-done
		first.close()
		second.close()
		is(t, "claims", len(claims(t, gate.Store, 0)), 1)
		check(t, gate.Store, f)
	})
}

// If two workers are stopped at the same time, the one that continues first does not take the other one for
// dead.
func TestBothStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := folder(t)
		f := plan(t, objects, 1, 4, 1)
		clocks := []*clock{{}, {}}
		first := start(t, objects, f, t.TempDir(), func(cfg *fleet.Config) { cfg.Clock = clocks[0] })
		next, stop := iter.Pull2(first.Tasks(t.Context()))
		defer stop()
		task, err, _ := next()
		must(t, err)
		time.Sleep(5 * time.Second) // it sees each heartbeat 5 s later
		second := start(t, objects, f, t.TempDir(), func(cfg *fleet.Config) { cfg.Clock = clocks[1] })
		done := make(chan struct{})
		go func() {
			defer close(done)
			second.work(second.Tasks(t.Context()))
		}()
		time.Sleep(22 * time.Second)
		clocks[0].stop(false)
		clocks[1].stop(false)
		time.Sleep(time.Hour)
		clocks[1].resume()
		time.Sleep(25 * time.Second)
		clocks[0].resume()
		for ok := true; ok; task, err, ok = next() {
			must(t, err)
			must(t, first.append(task, 0))
		}
		<-done
		first.close()
		second.close()
		is(t, "claims", len(claims(t, objects, 0)), 1)
		check(t, objects, f)
	})
}

// A worker that was lost for good is replaced. Its partitions are claimed once its heartbeat is 60 s old.
func TestDeadWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := folder(t)
		f := plan(t, objects, 5, 20, 1)
		dead := start(t, objects, f, t.TempDir(), slots(1000))
		next, stop := iter.Pull2(dead.Tasks(t.Context()))
		task, err, _ := next()
		must(t, err)
		must(t, dead.append(task, 0))
		for range 19 {
			_, err, _ := next()
			must(t, err)
		}
		dead.die()
		stop()
		began := time.Now()
		other := start(t, objects, f, t.TempDir())
		other.work(other.Tasks(t.Context()))
		other.close()
		if took := time.Since(began); took < 60*time.Second || took > 90*time.Second {
			t.Errorf("the replacement took %v", took)
		}
		check(t, objects, f)
	})
}

// A worker takes a partition back if the worker that had taken it over dies.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := folder(t)
		f := plan(t, objects, 1, 4, 1)
		c := &clock{}
		first := start(t, objects, f, t.TempDir(), func(cfg *fleet.Config) { cfg.Clock = c })
		next, stop := iter.Pull2(first.Tasks(t.Context()))
		defer stop()
		tasks := take(t, next, 4)
		time.Sleep(5 * time.Second)
		c.stop(true)
		second := start(t, objects, f, t.TempDir())
		other, end := iter.Pull2(second.Tasks(t.Context()))
		_, err, _ := other()
		must(t, err)
		second.die()
		end()
		c.resume()
		time.Sleep(time.Minute) // heartbeats come, but the first worker does not notice the loss
		for _, task := range tasks {
			must(t, first.append(task, 0))
		}
		var again []*collector.Task
		for range 4 {
			task, err, ok := next()
			must(t, err)
			if !ok {
				t.Fatal("the tasks have ended")
			}
			again = append(again, task)
		}
		for _, task := range again {
			must(t, first.append(task, 0))
		}
		_, _, more := next()
		is(t, "more tasks", more, false)
		first.close()
		_, moved := first.results()
		is(t, "moved", moved, 0) // the second Append of a key has the last word
		is(t, "claims", len(claims(t, objects, 0)), 3)
		check(t, objects, f)
	})
}

// If the store refuses a heartbeat, the worker fails, and its attempts and its tasks end.
func TestRefusedHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := &refusing{Store: folder(t)}
		f := plan(t, objects, 2, 4, 1)
		w := start(t, objects, f, t.TempDir())
		next, stop := iter.Pull2(w.Tasks(t.Context()))
		defer stop()
		task, err, _ := next()
		must(t, err)
		objects.on.Store(true)
		for name, err := range map[string]error{
			"Run": <-w.ended, "Admit": w.Admit(t.Context(), collector.Attempt{Task: task}), "Close": w.Close(t.Context()),
		} {
			if !errors.Is(err, fs.ErrPermission) || exit.Code(err) != exit.Storage {
				t.Errorf("%s: code %d, %v", name, exit.Code(err), err)
			}
		}
		for err == nil {
			_, err, _ = next()
		}
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("Tasks: %v", err)
		}
	})
}

// A refusing store refuses heartbeats while it is on.
type refusing struct {
	store.Store
	on atomic.Bool
}

func (r *refusing) Put(name string, body []byte) error {
	if r.on.Load() {
		return &store.Error{Path: name, Op: "put", Err: fs.ErrPermission}
	}
	return r.Store.Put(name, body)
}

// A worker that fails hands its partitions to the others at once. It keeps the one that failed, with
// samples that only its spool has, so that its next process can commit them.
func TestFailedWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := folder(t)
		f := plan(t, objects, 3, 30, 1)
		refusing := &refusingStore{Store: objects}
		failed := start(t, refusing, f, t.TempDir(), slots(1000), func(cfg *fleet.Config) { cfg.Sink.MaxShardAge = time.Second })
		next, stop := iter.Pull2(failed.Tasks(t.Context()))
		defer stop()
		tasks := take(t, next, 30)
		refusing.refuse.Store(true)
		must(t, failed.append(tasks[0], 0))
		if err := <-failed.ended; !errors.Is(err, fs.ErrPermission) {
			t.Fatalf("Run() = %v", err)
		}
		_, err, _ := next()
		for name, err := range map[string]error{"Tasks": err, "Admit": failed.Admit(t.Context(), collector.Attempt{Task: tasks[0]})} {
			if !errors.Is(err, collector.ErrStorage) { // the collector would wait for the store
				t.Errorf("%s: %v, want ErrStorage", name, err)
			}
		}

		other := start(t, objects, f, t.TempDir(), slots(1000))
		began, took := time.Now(), map[int]time.Duration{}
		other.work(func(yield func(*collector.Task, error) bool) {
			for task, err := range other.Tasks(t.Context()) {
				if p := fleet.PartitionOf(task.ID, 3); took[p] == 0 {
					took[p] = time.Since(began) + 1
				}
				if !yield(task, err) {
					return
				}
			}
		})
		other.close()
		spooled := fleet.PartitionOf(tasks[0].ID, 3)
		for p, d := range took {
			if p == spooled && d < 60*time.Second || p != spooled && d > 20*time.Second {
				t.Errorf("partition %d was taken over after %v; the spool has a sample of %d", p, d, spooled)
			}
		}
		is(t, "partitions", len(took), 3)
		check(t, objects, f)
	})
}

// A worker that cannot open its spool hands over the partitions that it has already claimed.
func TestFailedOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects, dir := folder(t), t.TempDir()
		f := plan(t, objects, 1, 5, 1)
		first := start(t, objects, f, dir)
		next, stop := iter.Pull2(first.Tasks(t.Context()))
		defer stop()
		task, err, _ := next()
		must(t, err)
		must(t, first.append(task, 0))
		first.die()
		must(t, os.Mkdir(filepath.Join(dir, "partitions", "x"), 0o700))
		_, err = fleet.Open(fleet.Config{Store: objects, Fleet: f, RunID: "run-" + filepath.Base(dir), Dir: dir, Sink: sink.Config{Format: sink.Arrow}})
		if exit.Code(err) != exit.Folder || len(claims(t, objects, 0)) != 2 {
			t.Fatalf("Open() = %v", err)
		}
		began := time.Now()
		other := start(t, objects, f, t.TempDir())
		other.work(other.Tasks(t.Context()))
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("the partition was taken over after %v", d)
		}
		other.close()
		committed, _ := other.results()
		is(t, "committed by the other worker", committed, 4)
		check(t, objects, f)
	})
}

// A refusingStore can refuse shards.
type refusingStore struct {
	store.Store
	refuse atomic.Bool
}

func (s *refusingStore) Sub(prefix string) store.Store { return within{s, prefix + "/"} }

func (s *refusingStore) PutFile(name, file string, sum [sha256.Size]byte) error {
	if s.refuse.Load() {
		return fs.ErrPermission
	}
	return s.Store.PutFile(name, file, sum)
}
