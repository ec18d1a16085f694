package fleet_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink/store"
)

// A spooled is a worker with a real collector in fake time, whose store takes objects late. It has spoolSlots
// samples in flight. Each takes 10 s on average.
type spooled struct {
	*process
	objects *lateStore
	fleet   *fleet.Fleet
	started atomic.Int64 // attempts
	waits   atomic.Int64 // calls of Waits
	waiting atomic.Bool
	c       *collector.Collector
	ended   chan error
}

const (
	spoolSlots = 4
	spoolAge   = time.Minute // of a shard
	// spoolBound is twice the average number of samples that end while a shard is open and in the 30 s of the commit
	// before it and of its own commit, with those in flight, because the durations vary. 0.4 samples end per second.
	spoolBound = 120
)

// startSpooled starts a worker that collects 400 samples in groups of 4.
func startSpooled(t *testing.T, late *lateStore, groups bool) *spooled {
	t.Helper()
	late.Store = store.Folder(unsynced{store.OS()}, t.TempDir())
	s := &spooled{objects: late, ended: make(chan error, 1)}
	s.fleet = plan(t, late.Store, 5, 100, 4)
	s.process = start(t, late, s.fleet, t.TempDir(), slots(spoolSlots), func(cfg *fleet.Config) {
		cfg.Sink.FS, cfg.Sink.MaxShardAge, cfg.Sink.CommitGroups = unsynced{store.OS()}, spoolAge, groups
		cfg.Waits = func(on bool) {
			s.waits.Add(1)
			s.waiting.Store(on)
		}
	})
	var err error
	s.c, err = collector.New(collector.Config{
		RunID: s.Name(), Sink: s, Admit: s.Admit, More: s.Tasks,
		Endpoints: []collector.Endpoint{{Name: "a", MaxInFlight: spoolSlots, Backend: s}},
	})
	must(t, err)
	go func() { s.ended <- s.c.Run(t.Context(), s.Known()) }()
	return s
}

// Open counts the attempts, as the backend of the collector.
func (s *spooled) Open(ctx context.Context, a collector.Attempt) (collector.Agent, error) {
	s.started.Add(1)
	return (&server{1, &simulated{mean: 10 * time.Second}}).Open(ctx, a)
}

// completes waits until the fleet is complete, and checks it.
func (s *spooled) completes() {
	s.t.Helper()
	must(s.t, <-s.ended)
	s.close()
	is(s.t, "committed", s.c.Stats().Committed, s.fleet.Samples())
	is(s.t, "started", s.started.Load(), int64(s.fleet.Samples()))
	is(s.t, "the worker waits", s.waiting.Load(), false)
	check(s.t, s.objects.Store, s.fleet)
}

// If the store refuses the samples in any way, a worker soon starts no more attempts. So its spool does not
// grow. When the store takes them, the worker completes the fleet by itself.
func TestSpoolBound(t *testing.T) {
	t.Parallel()
	put := func(parts ...string) func(op, name string) bool {
		return func(op, name string) bool {
			for _, part := range parts {
				if op == "put" && strings.Contains(name, part) {
					return true
				}
			}
			return false
		}
	}
	for name, refuses := range map[string]func(op, name string) bool{
		"all requests":     allRequests,
		"shards":           put("/data/"),
		"some partitions":  put("0/data/", "2/data/", "4/data/"),
		"entries":          put("/_commits/"),
		"all but beats":    func(_, name string) bool { return !strings.HasPrefix(name, "workers/") },
		"all of a dataset": func(_, name string) bool { return strings.HasPrefix(name, "partitions/") },
	} {
		for mode, groups := range map[string]bool{"shards": false, "groups": true} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					late := &lateStore{}
					s := startSpooled(t, late, groups)
					time.Sleep(time.Minute)
					late.refuse(refuses)
					for end := time.Now().Add(10 * time.Minute); !s.waiting.Load() && time.Now().Before(end); {
						time.Sleep(time.Second)
					}
					started := s.started.Load()
					time.Sleep(5 * time.Minute)
					is(t, "attempts that started later", s.started.Load(), started)
					if n := s.Stats().Pending; n > spoolBound {
						t.Errorf("the spool has %d samples, want at most %d", n, spoolBound)
					}
					is(t, "the worker waits", s.waiting.Load(), true)
					late.refuse(nil)
					s.completes()
					is(t, "calls of Waits", s.waits.Load(), 2)
				})
			})
		}
	}
}

// If the store takes shards more slowly than the worker collects samples, the worker collects more slowly.
func TestSlowPuts(t *testing.T) {
	t.Parallel()
	for mode, groups := range map[string]bool{"shards": false, "groups": true} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := startSpooled(t, &lateStore{slow: 10 * time.Minute}, groups)
				var most int64
				for len(s.ended) == 0 {
					most = max(most, s.Stats().Pending)
					time.Sleep(time.Second)
				}
				s.completes()
				if most > spoolBound {
					t.Errorf("the spool had up to %d samples, want at most %d", most, spoolBound)
				}
				if n := s.waits.Load(); n < 8 {
					t.Errorf("%d calls of Waits, want a pause for several shards", n)
				}
			})
		})
	}
}

// A worker claims a partition again that it has lost only after its last put for it has ended, because both use
// the same folder.
func TestLostDuringPut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := &lateStore{Store: folder(t)}
		f := plan(t, late.Store, 1, 10, 1)
		w := start(t, late, f, t.TempDir(), func(cfg *fleet.Config) { cfg.Sink.MaxShardAge = spoolAge })
		next, stop := iter.Pull2(w.Tasks(t.Context()))
		defer stop()
		tasks := take(t, next, 10)
		for _, task := range tasks[:5] {
			must(t, w.append(task, 0))
		}
		late.refuse(allRequests)
		time.Sleep(2 * spoolAge) // the worker is dead for others, and waits in its put of a shard
		other := start(t, late.Store, f, t.TempDir())
		taken, stopOther := iter.Pull2(other.Tasks(t.Context()))
		task, err, _ := taken()
		must(t, err)
		must(t, other.append(task, 0))
		stopOther()
		other.close()

		late.refuse(func(op, name string) bool { return op == "put" && strings.Contains(name, "/data/") })
		time.Sleep(spoolAge)
		for _, task := range tasks[5:] {
			is(t, "moved", errors.Is(w.append(task, 0), collector.ErrMoved), true)
		}
		time.AfterFunc(spoolAge, func() { late.refuse(nil) })
		w.work(func(yield func(*collector.Task, error) bool) {
			for {
				if task, err, ok := next(); !ok || !yield(task, err) {
					return
				}
			}
		})
		w.close()
		is(t, "claims", len(claims(t, late.Store, 0)), 3)
		check(t, late.Store, f)
	})
}

// A lateStore blocks the operations that it refuses, as a bucket repeats its requests. It takes a shard slowly.
type lateStore struct {
	store.Store
	slow    time.Duration
	mu      sync.Mutex
	refuses func(op, name string) bool // nil: nothing
	changed chan struct{}              // closed when refuses changes
}

func allRequests(string, string) bool { return true }

func (l *lateStore) refuse(what func(op, name string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
	}
	l.refuses, l.changed = what, make(chan struct{})
}

func (l *lateStore) wait(op, name string) {
	for {
		l.mu.Lock()
		refused, changed := l.refuses != nil && l.refuses(op, name), l.changed
		l.mu.Unlock()
		if !refused {
			return
		}
		<-changed
	}
}

func (l *lateStore) Sub(prefix string) store.Store { return within{l, prefix + "/"} }

func (l *lateStore) PutNew(name string, body []byte) error {
	l.wait("put", name)
	return l.Store.PutNew(name, body)
}

func (l *lateStore) PutFile(name, file string, sum [32]byte) error {
	time.Sleep(l.slow)
	l.wait("put", name)
	return l.Store.PutFile(name, file, sum)
}

func (l *lateStore) Put(name string, body []byte) error {
	l.wait("put", name)
	return l.Store.Put(name, body)
}

func (l *lateStore) Get(name string) ([]byte, error) {
	l.wait("get", name)
	return l.Store.Get(name)
}

func (l *lateStore) List(prefix, after string) iter.Seq2[store.Info, error] {
	l.wait("list", prefix)
	return l.Store.List(prefix, after)
}
