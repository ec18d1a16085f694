package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// A fate is what happens to a worker while it collects.
type fate string

const (
	cutOff        fate = "cut off from the store for a minute"
	paused        fate = "paused until it counts as dead, and resumed"
	killedForGood fate = "killed for good with its spool, and replaced"
	restarted     fate = "killed, and restarted with its spool"
	interrupted   fate = "interrupted"
	unharmed      fate = "unharmed"
)

const (
	cutTime = time.Minute
	// pauseTime is longer than other workers need to find out that a worker is dead: 60 s after its heartbeat,
	// with two pauses of 10 s.
	pauseTime = 90 * time.Second
)

// A chaosTest is a fleet and the fates of its workers.
type chaosTest struct {
	workers, partitions int
	fates               []fate // in this order
	tasks, samples      int    // samples of each task
	latency             string
	script              lettasim.Script
	bin                 string // the program
}

// The workers of a fleet are killed, paused, interrupted and cut off from the store. Each sample is in the
// store once, and a reader that follows the fleet gets each group once and whole. With the URL of an
// S3 server in ROLLOUT_FLEET, the test is long: 5,000 samples in the bucket of this server.
func TestFleetChaos(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a worker counts as dead only after a minute")
	}
	if server := os.Getenv("ROLLOUT_FLEET"); server != "" {
		c := chaosTest{
			workers: 8, partitions: 64,
			fates: []fate{cutOff, killedForGood, interrupted, killedForGood, restarted, killedForGood, cutOff, paused},
			tasks: 1250, samples: 4, latency: "500ms..2500ms",
			script: lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 3}, Drift: 0.2, Length: 0.05, Wrong: 0.3, Tokens: lettasim.Range{Min: 1000, Max: 4000}},
			bin:    must(buildProgram(filepath.Join(t.TempDir(), "rollout")))(t),
		}
		c.run(t, &chaosStore{t: t, server: storetest.Forward(must(url.Parse(server))(t))})
		return
	}
	c := chaosTest{
		workers: 4, partitions: 16,
		fates: []fate{killedForGood, restarted, interrupted, paused},
		tasks: 80, samples: 3, latency: "100ms..1s", script: killScript(), bin: "rollout",
	}
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		c.run(t, &chaosStore{t: t, folder: filepath.Join(t.TempDir(), "store")})
	})
	t.Run("bucket", func(t *testing.T) {
		t.Parallel()
		server := &storetest.Server{}
		server.Create("bucket")
		c := c
		c.workers++
		c.fates = append([]fate{cutOff}, c.fates...)
		c.run(t, &chaosStore{t: t, server: server})
	})
}

// A chaosStore is the store of a fleet. Each process reaches a bucket through a proxy of its own.
type chaosStore struct {
	t        *testing.T
	folder   string       // of the fleet
	server   http.Handler // of the bucket; nil: the store is a folder
	mu       sync.Mutex
	requests map[string]map[string]int // by process and kind
}

// connect returns the fleet's location for a process, and the proxy in front of it. For a folder, the proxy is
// nil.
func (s *chaosStore) connect(process string) (at string, proxy *storetest.Proxy) {
	s.t.Helper()
	if s.server == nil {
		return s.folder, nil
	}
	proxy = &storetest.Proxy{Server: s.server}
	endpoint := serve(s.t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.count(process, r)
		proxy.ServeHTTP(w, r)
	})})
	return "s3://bucket/run1?region=us-east-1&endpoint_override=" + endpoint, proxy
}

func (s *chaosStore) count(process string, r *http.Request) {
	kind := r.Method
	switch {
	case strings.Contains(r.URL.Path, "/.probe/"):
		process = "probes" // at the start of each process
	case r.URL.Query().Has("list-type"):
		kind = "LIST"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == nil {
		s.requests = map[string]map[string]int{}
	}
	if s.requests[process] == nil {
		s.requests[process] = map[string]int{}
	}
	s.requests[process][kind]++
}

func (s *chaosStore) logRequests(samples int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, process := range slices.Sorted(maps.Keys(s.requests)) {
		n := 0
		for _, count := range s.requests[process] {
			n += count
		}
		s.t.Logf("%s: %d requests per 1,000 samples; all requests: %v", process, n*1000/samples, s.requests[process])
	}
}

// A chaosFleet is a fleet that is being collected.
type chaosFleet struct {
	chaosTest
	t       *testing.T
	store   *chaosStore
	dir     string // for spools
	started []*chaosWorker
	cuts    int            // number of workers that were cut off
	later   sync.WaitGroup // ends of fates
}

// A chaosWorker is a worker with a spool. If it is restarted, it has another process.
type chaosWorker struct {
	*process
	fate      fate
	at, spool string
	proxy     *storetest.Proxy
}

func (c chaosTest) run(t *testing.T, s *chaosStore) {
	t.Helper()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: c.script, Latency: latencyOf(t, c.latency)})
	server, samples, began := serveSim(t, sim), c.tasks*c.samples, time.Now()
	at, _ := s.connect("plan")
	planFleet(t, at, sim, server, c.tasks, c.samples, c.partitions)
	f := &chaosFleet{chaosTest: c, t: t, store: s, dir: t.TempDir()}
	for range c.workers {
		f.add()
	}
	reader := f.follow()
	for i, fate := range c.fates { // the last ones when all partitions are claimed, so that other workers take them over
		from := int64((i + 1) * samples * 9 / (10 * len(c.fates)))
		waitFor(t, "answers", func() bool { return sim.Stats().Answered >= from })
		f.meet(fate)
		t.Logf("after %v, %d answers: a worker is %s", time.Since(began).Round(time.Second), sim.Stats().Answered, fate)
	}
	f.later.Wait()
	for _, w := range f.started {
		code := w.wait(t, 10*time.Minute)
		if code != exit.OK && (w.fate != killedForGood || code != -1) && (w.fate != interrupted || code != exit.Interrupted) {
			t.Errorf("the worker that was %s ends with %d: %s", w.fate, code, w.said())
		}
		if strings.Contains(w.said(), "panic:") {
			t.Error(w.said())
		}
	}
	reader.ends(t, time.Minute, exit.OK)
	t.Logf("%d samples in %v\n%s", samples, time.Since(began).Round(time.Second), reader.said())
	s.logRequests(samples)
	checkFleet(t, at, samples)

	most := 4 * strings.Count(fmt.Sprint(c.fates), string(killedForGood))
	if left := agentsLeft(t, sim); len(left) > most {
		t.Errorf("agents are left: %q", left)
	}
	startProgram(t, c.bin, nil, "clean", at, "--server", server).ends(t, time.Minute, exit.OK)
	if left := agentsLeft(t, sim); len(left) > 0 {
		t.Errorf("agents are left after clean: %q", left)
	}
}

// add starts a worker with a new spool.
func (f *chaosFleet) add() {
	f.t.Helper()
	w := &chaosWorker{fate: unharmed, spool: filepath.Join(f.dir, fmt.Sprint(len(f.started)))}
	w.at, w.proxy = f.store.connect("workers")
	f.start(w)
	f.started = append(f.started, w)
}

func (f *chaosFleet) start(w *chaosWorker) {
	f.t.Helper()
	w.process = startProgram(f.t, f.bin, nil, "work", w.at, "--spool", w.spool, "--max-in-flight", "4", "--preflight", "connect")
}

// holds reports whether the worker has finished a sample that is not in the store.
func (w *chaosWorker) holds() bool {
	waiting, _ := filepath.Glob(filepath.Join(w.spool, "partitions", "*", "wal", "*.wal"))
	return slices.ContainsFunc(waiting, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.Size() > 1000
	})
}

// meet is the fate of an unharmed worker that has finished a sample and not yet committed it.
func (f *chaosFleet) meet(fate fate) {
	f.t.Helper()
	i := -1
	waitFor(f.t, "a worker with a sample that is only in its spool", func() bool {
		i = slices.IndexFunc(f.started, func(w *chaosWorker) bool { return w.fate == unharmed && w.holds() })
		return i >= 0
	})
	w := f.started[i]
	switch w.fate = fate; fate {
	case cutOff:
		w.proxy.Plan(f.cut())
		f.ending(cutTime, func() { w.proxy.Plan(nil) })
	case paused:
		noError(f.t, w.cmd.Process.Signal(syscall.SIGSTOP))
		f.ending(pauseTime, func() { _ = w.cmd.Process.Signal(syscall.SIGCONT) })
	case killedForGood:
		w.kill()
		f.add()
	case restarted:
		w.kill()
		f.start(w)
	case interrupted:
		_ = w.cmd.Process.Signal(syscall.SIGTERM) // it might have ended
	}
}

// ending ends a fate after a time.
func (f *chaosFleet) ending(after time.Duration, end func()) {
	f.later.Go(func() {
		time.Sleep(after)
		end()
	})
}

// cut returns a plan for the time in which a worker is cut off. The server handles the first requests, but
// their answers are lost. For the first worker, later requests fail at once. For the second worker, they get no
// answer.
func (f *chaosFleet) cut() func(*http.Request) storetest.Fault {
	n, fault := 0, []storetest.Fault{storetest.Drop, storetest.Silence}[f.cuts%2]
	f.cuts++
	return func(*http.Request) storetest.Fault {
		if n++; n <= 4 {
			return storetest.Lose
		}
		return fault
	}
}

// follow starts a reader of the fleet, whose requests have faults.
func (f *chaosFleet) follow() *process {
	f.t.Helper()
	at, proxy := f.store.connect("the reader")
	if proxy != nil {
		proxy.Plan(storetest.Random(1, 0.05, storetest.Answer(503, "SlowDown"), storetest.Drop, storetest.Hang, storetest.Silence,
			storetest.Truncate, storetest.Slow, storetest.Stale()))
	}
	return startFleetCheck(f.t, at, "--follow")
}

// startFleetCheck starts a Python program that checks a fleet and reads only the store.
func startFleetCheck(t *testing.T, at string, flags ...string) *process {
	t.Helper()
	args := append([]string{filepath.Join("..", "..", ".ci", "fleetcheck.py"), at}, flags...)
	return startProgram(t, findPython(t), []string{"AWS_ENDPOINT_URL=", "ARROW_DEFAULT_MEMORY_POOL=system"}, args...)
}

// checkFleet reads only the store: each sample is in it once, all files are whole, and all partitions are
// sealed.
func checkFleet(t *testing.T, at string, samples int) {
	t.Helper()
	p := startFleetCheck(t, at, "--complete")
	p.ends(t, 5*time.Minute, exit.OK)
	t.Log(p.stderr.String())
	if got := strings.TrimSpace(p.stdout.String()); got != fmt.Sprint(samples) {
		t.Errorf("%s samples, want %d", got, samples)
	}
	startProgram(t, "rollout", nil, "verify", at).ends(t, 5*time.Minute, exit.OK)
}
