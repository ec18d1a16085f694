package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

type toldGroup struct {
	Event, Group, Task string
	Again              bool
	Seq                int64
	N, Size, Failed    int
}

// A streamed is a collector with --stream, driven like a trainer drives it.
type streamed struct {
	*process
	t      *testing.T
	on     func(toldGroup) // called with every event; nil: not
	dir    string
	stdin  io.WriteCloser
	groups chan toldGroup // closed at the end of the events
	heard  chan struct{}  // closed then, too
	client *ctl.Client

	mu     sync.Mutex
	events map[string]int
	server string // of metrics
}

func startStream(t *testing.T, dir string, on func(toldGroup), args ...string) *streamed {
	t.Helper()
	p := newProcess(t, "rollout", []string{"GOGC=50"}, append([]string{"collect", "--stream", "--json", "--out", dir}, args...)...)
	s := &streamed{process: p, t: t, on: on, dir: dir, groups: make(chan toldGroup, 1<<16), heard: make(chan struct{}), events: map[string]int{}}
	s.stdin = must(p.cmd.StdinPipe())(t)
	stdout, w := pipe(t)
	p.cmd.Stdout = w
	p.start(t)
	_ = w.Close() // the process has its own copy
	go s.read(stdout)
	return s
}

func (s *streamed) read(stdout io.ReadCloser) {
	defer func() {
		close(s.groups)
		close(s.heard)
		_ = stdout.Close()
	}()
	var bad error
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var g toldGroup
		if bad != nil { // only the last line of a killed process can be cut
			s.t.Error(bad)
		}
		if bad = json.Unmarshal(lines.Bytes(), &g); bad != nil {
			continue
		}
		if s.on != nil {
			s.on(g)
		}
		s.mu.Lock()
		s.events[g.Event]++
		if m := metricsAddress.Find(lines.Bytes()); m != nil && s.server == "" {
			s.server = string(m)
		}
		s.mu.Unlock()
		if g.Event == "group" {
			s.groups <- g
		}
	}
}

func (s *streamed) told() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.events)
}

func (s *streamed) give(lines ...[]byte) {
	s.t.Helper()
	if _, err := s.stdin.Write(bytes.Join(lines, nil)); err != nil {
		s.t.Fatalf("%v\n%s", err, s.stderr.String())
	}
}

func (s *streamed) take(n int) (list []toldGroup) {
	s.t.Helper()
	for range n {
		select {
		case g, ok := <-s.groups:
			if !ok {
				s.t.Fatalf("the collector has ended\n%s", s.stderr.String())
			}
			list = append(list, g)
		case <-time.After(time.Minute):
			s.t.Fatalf("%d of %d groups within a minute\n%s", len(list), n, s.stderr.String())
		}
	}
	return list
}

func (s *streamed) ack(g toldGroup) {
	s.t.Helper()
	if s.client == nil {
		s.client = must(ctl.Dial(s.t.Context(), s.dir))(s.t)
	}
	noError(s.t, s.client.Do(ctl.Request{Op: "ack", Seq: &g.Seq, Groups: &g.N}, nil))
}

// close ends the tasks, waits for the process to end, and checks the run.
func (s *streamed) close() {
	s.t.Helper()
	_ = s.stdin.Close()
	s.ends(s.t, time.Minute, exit.OK)
	<-s.heard
	mustRun(s.t, exit.OK, "verify", s.dir)
}

func (s *streamed) count(name string) int {
	s.t.Helper()
	return int(must(metric(s.metrics(), name))(s.t))
}

// metrics returns the address of the metrics, or "" if it is not known yet.
func (s *streamed) metrics() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server
}

// A training loop has iterations of 4 tasks with 8 samples each.
const loopTasks, loopSamples = 4, 8

// An iteration of 32 samples on a warm collector makes only the requests of its samples, at most
// one sync of the write-ahead log per sample, and one commit per group.
func TestGateLoop(t *testing.T) {
	t.Parallel()
	const iterations = 4
	sim := newSim(t, lettasim.Config{InputIDs: true, BodyCache: 64, Script: lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 1}}, Latency: latencyOf(t, "5ms..600ms")})
	tasks := slices.Collect(bytes.Lines(sim.Tasks(lettasim.TaskOptions{Scripted: iterations * loopTasks})))
	s := startStream(t, filepath.Join(t.TempDir(), "run"), nil, "--server", serveSim(t, sim), "--model", simModel, "--samples", strconv.Itoa(loopSamples),
		"--max-in-flight", "64", "--metrics-addr", "127.0.0.1:0", "-c", writeFile(t, "run.yaml", []byte("server: {adaptive: false}\n")))
	var before map[string]int64
	for n := range iterations {
		s.give(tasks[n*loopTasks : (n+1)*loopTasks]...)
		s.ack(s.take(loopTasks)[loopTasks-1])
		waitFor(t, "the agents to be removed", func() bool { return sim.Stats().AgentsAlive == 0 })
		now := sim.Stats().Requests
		each := maps.Clone(now)
		for route, was := range before {
			each[route] -= was
		}
		before = now
		maps.DeleteFunc(each, func(_ string, times int64) bool { return times == 0 })
		const all = loopTasks * loopSamples
		if want := map[string]int64{"POST /v1/agents/": all, "POST /v1/agents/{id}/messages": all, "DELETE /v1/agents/{id}": all}; n > 0 && !maps.Equal(each, want) {
			t.Errorf("iteration %d makes requests %v, want three for each sample", n+1, each)
		}
		syncs, commits := s.count("rollout_wal_fsync_duration_seconds_count"), s.told()["commit"]
		if n++; syncs > n*loopTasks*loopSamples || commits > n*loopTasks {
			t.Errorf("after iteration %d: %d syncs of the write-ahead log and %d commits", n, syncs, commits)
		}
	}
	s.close()
	if n := s.told()["sample"]; n != iterations*loopTasks*loopSamples {
		t.Errorf("%d samples were reported", n)
	}
}
