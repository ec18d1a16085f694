package fleet_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/sink/store/storetest"
	"github.com/rollout-rl/rollout/tokenize"
)

func TestMain(m *testing.M) {
	storetest.Setenv()
	sinktest.FillPools()
	os.Exit(m.Run()) //nolint:forbidigo // the tests end here
}

// take returns the next n tasks of an iterator.
func take(tb testing.TB, next func() (*collector.Task, error, bool), n int) (tasks []*collector.Task) {
	tb.Helper()
	for range n {
		task, err, _ := next()
		must(tb, err)
		tasks = append(tasks, task)
	}
	return tasks
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func is[T comparable](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s: %v, want %v", what, got, want)
	}
}

// taskList yields n tasks of the given number of samples.
func taskList(n, samples int) iter.Seq2[*collector.Task, error] {
	return func(yield func(*collector.Task, error) bool) {
		for i := range n {
			if !yield(&collector.Task{ID: fmt.Sprintf("task %d", i), Messages: []string{"hello"}, Samples: samples}, nil) {
				return
			}
		}
	}
}

// plan plans a fleet of n tasks and returns what the workers read.
func plan(tb testing.TB, objects store.Store, partitions, n, samples int) *fleet.Fleet {
	tb.Helper()
	must(tb, fleet.Plan(objects, &fleet.Fleet{ID: "fleet-1", Program: "test"}, partitions, taskList(n, samples), tb.TempDir()))
	f, err := fleet.Read(objects)
	must(tb, err)
	return f
}

// A bucket is a server and a proxy with faults.
type bucket struct {
	server   *storetest.Server
	proxy    *storetest.Proxy
	location string
}

func newBucket(t *testing.T) *bucket {
	t.Helper()
	b := &bucket{server: &storetest.Server{}}
	b.server.Create("bucket")
	b.proxy = &storetest.Proxy{Server: b.server}
	listener := httptest.NewServer(b.proxy)
	t.Cleanup(listener.Close)
	b.location = "s3://bucket/run?endpoint_override=" + listener.URL
	return b
}

// client returns the bucket with its own connections.
func (b *bucket) client(t *testing.T) store.Store {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background()) // not t.Context: cleanups use the store
	t.Cleanup(stop)
	s, err := store.Open(ctx, b.location, store.Options{Timeout: time.Second})
	must(t, err)
	return s
}

// A process is a worker that a test drives by hand.
type process struct {
	*fleet.Worker
	t     testing.TB
	dir   string
	kill  context.CancelCauseFunc
	ended chan error
	moved int // samples that were reported as moved
	mu    sync.Mutex
	done  map[string]error // by sample key
	logs  *lines
}

var errKilled = errors.New("killed")

// start starts a worker with a spool. It can be killed, and otherwise it must be closed.
func start(tb testing.TB, objects store.Store, f *fleet.Fleet, dir string, edit ...func(*fleet.Config)) *process {
	tb.Helper()
	p := &process{t: tb, dir: dir, ended: make(chan error, 1), done: map[string]error{}, logs: &lines{}}
	// The Parquet library shares decoders between tests, and the bubbles of synctest do not allow that.
	cfg := fleet.Config{Store: objects, Fleet: f, RunID: "run-" + filepath.Base(dir), Dir: dir, Sink: sink.Config{Format: sink.Arrow}, Slots: func() int { return 1 }, Logger: slog.New(slog.NewTextHandler(p.logs, nil))}
	for _, e := range edit {
		e(&cfg)
	}
	w, err := fleet.Open(cfg)
	must(tb, err)
	p.Worker = w
	ctx, kill := context.WithCancelCause(context.Background())
	p.kill = kill
	go func() { p.ended <- w.Run(ctx) }()
	return p
}

// die kills the process: its samples stay in its write-ahead logs.
func (p *process) die() {
	p.t.Helper()
	p.kill(errKilled)
	if err := <-p.ended; !errors.Is(err, errKilled) {
		p.t.Errorf("Run = %v", err)
	}
}

// close ends the process.
func (p *process) close() {
	p.t.Helper()
	must(p.t, p.Close(context.Background()))
	must(p.t, <-p.ended)
}

// append appends a sample of a task.
func (p *process) append(t *collector.Task, index int) error {
	s := sample(t, index)
	err := p.Append(context.Background(), s, func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done[s.Key] = err
	})
	if errors.Is(err, collector.ErrMoved) {
		p.moved++
	}
	return err
}

// work appends all samples of the tasks that it gets.
func (p *process) work(list iter.Seq2[*collector.Task, error]) {
	p.t.Helper()
	for t, err := range list {
		must(p.t, err)
		for i := range t.Samples {
			if _, _, has := p.Find(collector.SampleKey(t, i)); has {
				continue
			}
			if err := p.append(t, i); err != nil && !errors.Is(err, collector.ErrMoved) {
				p.t.Fatal(err)
			}
		}
	}
}

// results counts the samples that are committed, and those that have moved.
func (p *process) results() (committed, moved int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	moved = p.moved
	for key, err := range p.done {
		switch {
		case err == nil:
			committed++
		case errors.Is(err, collector.ErrMoved):
			moved++
		case !errors.Is(err, errKilled):
			p.t.Errorf("%s: %v", key, err)
		}
	}
	return committed, moved
}

func sample(t *collector.Task, index int) *tokenize.Sample {
	b := sinktest.NewBuilder(1)
	s := b.Sample(b.Row(4, 4))
	s.Key, s.TaskID, s.GroupID = collector.SampleKey(t, index), t.ID, collector.GroupID(t)
	s.Index, s.GroupSize, s.RolloutID = int32(index), int32(t.Samples), collector.RolloutID(s.Key, 1)
	return s
}

// check reads only the store: each planned sample is in it once, all files are whole, and all partitions
// are sealed.
func check(tb testing.TB, objects store.Store, f *fleet.Fleet) {
	tb.Helper()
	count := map[string]int{}
	for p := range f.Partitions {
		list, err := f.Tasks(objects, p)
		must(tb, err)
		if len(list) == 0 {
			continue
		}
		dataset := fleet.Dataset(objects, p)
		log, err := sink.ReadLogIn(dataset, "", nil)
		must(tb, err)
		if !log.Sealed() {
			tb.Errorf("partition %d is not sealed", p)
		}
		for _, c := range log.Commits {
			for _, s := range c.Samples {
				count[s.Key]++
			}
		}
		for _, t := range list {
			for i := range t.Samples {
				if n := count[collector.SampleKey(t, i)]; n != 1 {
					tb.Errorf("partition %d: sample %d of %s is in the log %d times", p, i, t.ID, n)
				}
			}
		}
		report, err := sink.Verify(context.Background(), "", sink.VerifyOptions{Store: dataset, RunID: f.ID})
		must(tb, err)
		if report.ProblemCount > 0 { // a worker that has lost the partition can leave orphans
			tb.Errorf("partition %d: problems %v", p, report.Problems)
		}
	}
	is(tb, "samples", len(count), f.Samples())
}

// claims returns the epochs and the workers of the claims in a partition's log.
func claims(tb testing.TB, objects store.Store, p int) (list []string) {
	tb.Helper()
	dataset := fleet.Dataset(objects, p)
	for info, err := range dataset.List("_commits/", "") {
		must(tb, err)
		body, err := dataset.Get(info.Name)
		must(tb, err)
		var c sink.Commit
		must(tb, json.Unmarshal(body, &c))
		if c.Kind == "claim" {
			list = append(list, fmt.Sprintf("%d %s", c.Epoch, c.Worker))
		}
	}
	return list
}

func folder(t *testing.T) store.Store {
	t.Helper()
	return store.Folder(store.OS(), filepath.Join(t.TempDir(), "store"))
}

// lines are the lines of a log.
type lines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	return len(b), nil
}

func (l *lines) has(tb testing.TB, want string) {
	tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !strings.Contains(string(l.text), want) {
		tb.Errorf("the log lacks %q:\n%s", want, l.text)
	}
}

// A clock runs with the time of a bubble. While it is stopped, its timers do not end. If the machine is
// suspended, the time of the clock stops too. If only the process is stopped, it
// continues.
type clock struct {
	mu      sync.Mutex
	behind  time.Duration // duration of earlier suspensions
	at      time.Time     // time of the suspension; zero if the clock runs
	stopped bool
	late    []func() // timers that have ended since
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *clock) now() time.Time {
	if !c.at.IsZero() {
		return c.at
	}
	return time.Now().Add(-c.behind)
}

func (c *clock) After(d time.Duration) <-chan time.Time {
	out := make(chan time.Time, 1)
	time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if fire := func() { out <- time.Now() }; c.stopped {
			c.late = append(c.late, fire)
		} else {
			fire()
		}
	})
	return out
}

func (c *clock) stop(suspend bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped = true; suspend {
		c.at = c.now()
	}
}

func (c *clock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.stopped, c.at = false, time.Time{}
	c.behind = time.Since(now)
	for _, fire := range c.late {
		fire()
	}
	c.late = nil
}

// A within is the part of a wrapped store whose names have a prefix, which ends with a slash. All operations go
// through the wrapper.
type within struct {
	objects store.Store
	prefix  string
}

func (w within) PutNew(name string, body []byte) error { return w.objects.PutNew(w.prefix+name, body) }

func (w within) PutFile(name, file string, sum [sha256.Size]byte) error {
	return w.objects.PutFile(w.prefix+name, file, sum)
}

func (w within) Put(name string, body []byte) error     { return w.objects.Put(w.prefix+name, body) }
func (w within) Get(name string) ([]byte, error)        { return w.objects.Get(w.prefix + name) }
func (w within) Open(name string) (store.Object, error) { return w.objects.Open(w.prefix + name) }
func (w within) Sub(prefix string) store.Store          { return within{w.objects, w.prefix + prefix + "/"} }
func (w within) Delete(name string) error               { return w.objects.Delete(w.prefix + name) }
func (w within) Now() (time.Time, error)                { return w.objects.Now() }
func (w within) String() string                         { return w.objects.String() + "/" + strings.TrimSuffix(w.prefix, "/") }

func (w within) List(prefix, after string) iter.Seq2[store.Info, error] {
	if after != "" {
		after = w.prefix + after
	}
	return func(yield func(store.Info, error) bool) {
		for info, err := range w.objects.List(w.prefix+prefix, after) {
			info.Name = strings.TrimPrefix(info.Name, w.prefix)
			if !yield(info, err) {
				return
			}
		}
	}
}
