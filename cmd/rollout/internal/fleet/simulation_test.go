package fleet_test

import (
	"cmp"
	"container/heap"
	"context"
	"hash/fnv"
	"iter"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/tokenize"
)

// A simulated fleet has workers with slots samples at a time each. The first worker is half as fast. The
// durations of the rollouts are log-normal with σ = 1, and cut at 4 minutes.
type simulated struct {
	workers, slots, tasks, samples int
	partitions                     int // 0: the default
	mean                           time.Duration
	seed                           uint64
}

// TestMakespan compares fleets with one shared queue, in fake time, with the real collectors, claims and
// datasets. A request to the store takes 30 ms. With the default number of partitions, the fleets take at
// most 1.1 times as long as the queues. One rollout can decide when a fleet ends, so one fleet proves little.
func TestMakespan(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the simulation takes 10 seconds of CPU time")
	}
	const runs = 4
	var took, queue atomic.Int64
	t.Run("runs", func(t *testing.T) {
		for seed := range uint64(runs) {
			s := simulated{workers: 8, slots: 8, tasks: 1250, samples: 4, mean: time.Minute, seed: seed}
			t.Run(strconv.Itoa(int(seed)), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					t.Helper()
					d, _ := s.run(t)
					took.Add(int64(d))
				})
				queue.Add(int64(s.queue()))
			})
		}
	})
	ratio := float64(took.Load()) / float64(queue.Load())
	t.Logf("the fleets took %v, the queues %v, ratio %.3f", time.Duration(took.Load())/runs, time.Duration(queue.Load())/runs, ratio)
	if ratio > 1.1 {
		t.Errorf("the fleets took %.3f times as long as shared queues, want at most 1.1", ratio)
	}
}

// TestGateRequests bounds the requests of a fleet per 1,000 samples.
func TestGateRequests(t *testing.T) {
	t.Parallel()
	for slots, most := range map[int]int{8: 1700, 64: 800} {
		s := simulated{workers: 8, slots: slots, tasks: 1250, samples: 4, partitions: 64, mean: time.Minute}
		t.Run(strconv.Itoa(slots), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				t.Helper()
				if _, n := s.run(t); n > most {
					t.Errorf("%d requests per 1,000 samples, want at most %d", n, most)
				}
			})
		})
	}
}

// run returns the time until the last partition is sealed, and the number of requests per 1,000 samples.
func (s *simulated) run(t *testing.T) (took time.Duration, perThousand int) {
	t.Helper()
	objects := &slowStore{Store: store.Folder(unsynced{store.OS()}, t.TempDir()), requests: map[string]int{}}
	f := plan(t, objects, cmp.Or(s.partitions, fleet.DefaultPartitions(s.tasks)), s.tasks, s.samples)
	objects.take()
	began := time.Now()
	var wg sync.WaitGroup
	var committed atomic.Int64
	for i := range s.workers {
		dir, speed := t.TempDir(), 1.0
		if i == 0 {
			speed = 0.5
		}
		wg.Go(func() { committed.Add(int64(s.collect(t, objects, f, dir, speed))) })
	}
	wg.Wait()
	is(t, "committed", committed.Load(), int64(f.Samples()))
	requests, n := objects.take(), 0
	for _, of := range requests {
		n += of
	}
	took, perThousand = objects.sealed.Sub(began), 1000*n/f.Samples()
	t.Logf("%d partitions, %d samples in %v, %d requests per 1,000 samples: %v", len(f.Partitions), f.Samples(), took, perThousand, requests)
	return took, perThousand
}

// collect runs one worker with a real collector.
func (s *simulated) collect(t *testing.T, objects store.Store, f *fleet.Fleet, dir string, speed float64) int {
	t.Helper()
	w, err := fleet.Open(fleet.Config{
		Store: objects, Fleet: f, RunID: "run-" + filepath.Base(dir), Dir: dir, Slots: func() int { return s.slots },
		Sink: sink.Config{Format: sink.Arrow, FS: unsynced{store.OS()}},
	})
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.Background()) }()
	c, err := collector.New(collector.Config{
		RunID: w.Name(), Sink: w, Admit: w.Admit, More: w.Tasks,
		Endpoints: []collector.Endpoint{{Name: "a", MaxInFlight: s.slots, Backend: &server{speed, s}}},
	})
	must(t, err)
	must(t, c.Run(t.Context(), w.Known()))
	must(t, w.Close(t.Context()))
	must(t, <-ended)
	return c.Stats().Committed
}

// duration returns the duration of a sample on a fast worker, which depends only on its key.
func (s *simulated) duration(key string) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	z := rand.New(rand.NewPCG(h.Sum64(), s.seed)).NormFloat64()
	return time.Duration(float64(s.mean) * min(4, math.Exp(z-0.5)))
}

// queue returns the makespan of one shared queue: each free slot takes the next sample at once.
func (s *simulated) queue() time.Duration {
	var free slotHeap
	for i := range s.workers * s.slots {
		speed := 1.0
		if i < s.slots {
			speed = 0.5
		}
		free = append(free, slot{0, speed})
	}
	var end time.Duration
	for task := range taskList(s.tasks, s.samples) {
		for i := range task.Samples {
			at := free[0]
			at.free += time.Duration(float64(s.duration(collector.SampleKey(task, i))) / at.speed)
			end = max(end, at.free)
			free[0] = at
			heap.Fix(&free, 0)
		}
	}
	return end
}

type slot struct {
	free  time.Duration
	speed float64
}

type slotHeap []slot

func (h slotHeap) Len() int           { return len(h) }
func (h slotHeap) Less(i, j int) bool { return h[i].free < h[j].free }
func (h slotHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *slotHeap) Push(any)          {}
func (h *slotHeap) Pop() any          { return nil }

// A server answers each rollout after its duration.
type server struct {
	speed float64
	*simulated
}

func (s *server) Open(_ context.Context, a collector.Attempt) (collector.Agent, error) {
	return &rolloutAgent{a, s}, nil
}

type rolloutAgent struct {
	collector.Attempt
	s *server
}

func (a *rolloutAgent) ID() string { return a.Key }

func (a *rolloutAgent) Run(ctx context.Context) (*collector.Reply, error) {
	select {
	case <-time.After(time.Duration(float64(a.s.duration(a.Key)) / a.s.speed)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &collector.Reply{AgentID: a.Key, Model: "test", Output: "4", Sends: []collector.Send{{
		Turns:      []tokenize.Turn{{Role: tokenize.RoleAssistant, PromptIDs: []int32{1, 2}, OutputIDs: []int32{3, 4}, Logprobs: []float32{-1, -1}, IDMismatch: -1, Content: "4"}},
		StopReason: "end_turn", Usage: collector.Usage{PromptTokens: 2, CompletionTokens: 2, Steps: 1},
	}}}, nil
}

func (a *rolloutAgent) Prompts(_ context.Context, r *collector.Reply) ([]tokenize.Call, error) {
	return tokenize.CallsFromTurns(nil, r.Sends[0].Turns)
}
func (a *rolloutAgent) Close(context.Context) error { return nil }

// A slowStore takes 30 ms for each request, counts the requests, and knows when the last partition was
// sealed.
type slowStore struct {
	store.Store
	mu       sync.Mutex
	requests map[string]int // by kind
	sealed   time.Time
}

func (s *slowStore) request(op, name string) {
	kind, _, _ := strings.Cut(strings.TrimLeft(strings.TrimPrefix(name, "partitions/"), "0123456789/"), "/")
	s.mu.Lock()
	s.requests[op+" "+kind]++
	s.mu.Unlock()
	time.Sleep(30 * time.Millisecond)
}

func (s *slowStore) Sub(prefix string) store.Store { return within{s, prefix + "/"} }

// take returns the numbers of requests since the last call.
func (s *slowStore) take() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.requests
	s.requests = map[string]int{}
	return taken
}

func (s *slowStore) PutNew(name string, body []byte) error {
	s.request("put", name)
	if strings.Contains(string(body[:min(100, len(body))]), `"kind":"sealed"`) {
		s.mu.Lock()
		s.sealed = time.Now()
		s.mu.Unlock()
	}
	return s.Store.PutNew(name, body)
}

func (s *slowStore) PutFile(name, file string, sum [32]byte) error {
	s.request("put", name)
	s.request("head", name)
	return s.Store.PutFile(name, file, sum)
}

func (s *slowStore) Put(name string, body []byte) error {
	s.request("put", name)
	return s.Store.Put(name, body)
}

func (s *slowStore) Get(name string) ([]byte, error) {
	s.request("get", name)
	return s.Store.Get(name)
}

func (s *slowStore) Open(name string) (store.Object, error) {
	s.request("open", name)
	return s.Store.Open(name)
}

func (s *slowStore) Delete(name string) error {
	s.request("delete", name)
	return s.Store.Delete(name)
}

func (s *slowStore) List(prefix, after string) iter.Seq2[store.Info, error] {
	s.request("list", prefix)
	return s.Store.List(prefix, after)
}

// unsynced is a file system without syncs, because the simulation makes thousands of them.
type unsynced struct{ store.FS }

func (unsynced) SyncDir(string) error { return nil }

func (u unsynced) Create(name string) (store.File, error) {
	f, err := u.FS.Create(name)
	return unsyncedFile{f}, err
}

type unsyncedFile struct{ store.File }

func (unsyncedFile) Sync() error { return nil }
