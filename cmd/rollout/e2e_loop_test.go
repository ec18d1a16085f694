package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

type toldGroup struct {
	Event, Group, Task string
	Seq                int64
	N, Size, Failed    int
}

// A streamed is a collector with --stream, driven like a trainer drives it.
type streamed struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr lockedBuffer
	groups chan toldGroup // closed at the end of the events
	client *ctl.Client

	mu     sync.Mutex
	events map[string]int
	server string // of metrics
	ended  chan struct{}
}

func startStream(t *testing.T, bin, dir string, args ...string) *streamed {
	t.Helper()
	s := &streamed{t: t, dir: dir, groups: make(chan toldGroup, 1<<16), events: map[string]int{}, ended: make(chan struct{})}
	s.cmd = exec.CommandContext(t.Context(), bin, append([]string{"collect", "--stream", "--json", "--out", dir}, args...)...)
	s.cmd.Env = append(os.Environ(), "GOGC=50")
	s.cmd.Stderr = &s.stderr
	var err, oerr error
	s.stdin, err = s.cmd.StdinPipe()
	stdout, oerr := s.cmd.StdoutPipe()
	if err := errors.Join(err, oerr, s.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		s.read(stdout)
		_ = s.cmd.Wait() // close checks the exit code
	}()
	return s
}

func (s *streamed) read(stdout io.Reader) {
	defer close(s.groups)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var g toldGroup
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			s.t.Errorf("%v: %s", err, lines.Bytes())
			continue
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
	var err error
	if s.client == nil {
		if s.client, err = ctl.Dial(s.t.Context(), s.dir); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.client.Do(ctl.Request{Op: "ack", Seq: &g.Seq, Groups: &g.N}, nil); err != nil {
		s.t.Fatal(err)
	}
}

// close ends the tasks, waits for the process to end, and checks the run.
func (s *streamed) close() {
	s.t.Helper()
	_ = s.stdin.Close()
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		s.t.Fatalf("the collector does not end\n%s", s.stderr.String())
	}
	if code := s.cmd.ProcessState.ExitCode(); code != exit.OK {
		s.t.Errorf("exit code %d\n%s", code, s.stderr.String())
	}
	mustRun(s.t, exit.OK, "verify", s.dir)
}

func (s *streamed) count(name string) int {
	s.t.Helper()
	n, err := metric(s.metrics(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return int(n)
}

// metrics returns the address of the metrics, or "" if it is not known yet.
func (s *streamed) metrics() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server
}

func slowest(t *testing.T, dir string) map[string]time.Duration {
	t.Helper()
	log, err := sink.ReadLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	took := map[string]time.Duration{}
	for s := range log.Shards(sink.KindData) {
		for r, err := range log.Facts(s) {
			if err != nil {
				t.Fatal(err)
			}
			took[r.TaskID] = max(took[r.TaskID], time.Duration(r.DurationMS)*time.Millisecond)
		}
	}
	return took
}

// A loop is a training loop with iterations of 4 tasks with 8 samples each.
type loop struct {
	t     *testing.T
	sim   *lettasim.Server
	url   string
	tasks [][]byte
	args  []string
	train time.Duration // of one iteration
}

const loopTasks, loopSamples = 4, 8

func newLoop(t *testing.T, iterations int, latency string, train time.Duration, args ...string) *loop {
	t.Helper()
	cfg := lettasim.Config{InputIDs: true, BodyCache: 64, Script: lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 1}}}
	cfg.Latency = latencyOf(t, latency)
	l := &loop{t: t, sim: newSim(t, cfg), train: train}
	l.url = serveSim(t, l.sim)
	l.tasks = slices.Collect(bytes.Lines(l.sim.Tasks(lettasim.TaskOptions{Scripted: iterations * loopTasks})))
	l.args = append([]string{
		"--server", l.url, "--model", simModel, "--samples", strconv.Itoa(loopSamples), "--max-in-flight", "64",
		"-c", writeFile(t, "run.yaml", []byte("server: {adaptive: false}\n")),
	}, args...)
	return l
}

// onPolicy starts an iteration when the previous step is trained. It returns the total time. For
// each iteration, it also returns the time from its tasks to its last group, minus the duration of
// its slowest sample.
func (l *loop) onPolicy(bin string, more ...string) (all time.Duration, over []time.Duration) {
	began := time.Now()
	s := startStream(l.t, bin, filepath.Join(l.t.TempDir(), "run"), append(l.args, more...)...)
	type iteration struct {
		took   time.Duration
		groups []toldGroup
	}
	var list []iteration
	for tasks := range slices.Chunk(l.tasks, loopTasks) {
		at := time.Now()
		s.give(tasks...)
		groups := s.take(len(tasks))
		list = append(list, iteration{time.Since(at), groups})
		s.ack(groups[len(groups)-1])
		time.Sleep(l.train)
	}
	all = time.Since(began)
	s.close()
	took := slowest(l.t, s.dir)
	for _, one := range list {
		var longest time.Duration
		for _, g := range one.groups {
			longest = max(longest, took[g.Task])
		}
		over = append(over, one.took-longest)
	}
	return all, over
}

// oneStepOff collects while it trains. Groups of two iterations can be in progress, and the trainer
// takes whole groups in order.
func (l *loop) oneStepOff(bin string) time.Duration {
	began := time.Now()
	s := startStream(l.t, bin, filepath.Join(l.t.TempDir(), "run"), append(l.args, "--max-ahead", strconv.Itoa(2*loopTasks))...)
	s.give(l.tasks...)
	for range len(l.tasks) / loopTasks {
		groups := s.take(loopTasks)
		time.Sleep(l.train)
		s.ack(groups[len(groups)-1])
	}
	all := time.Since(began)
	s.close()
	return all
}

func (l *loop) calls(bin string) time.Duration {
	began := time.Now()
	for tasks := range slices.Chunk(l.tasks, loopTasks) {
		file := writeFile(l.t, "tasks.jsonl", bytes.Join(tasks, nil))
		args := append([]string{"collect", "--quiet", "--out", filepath.Join(l.t.TempDir(), "run"), "--tasks", file}, l.args...)
		p := startProgram(l.t, bin, nil, args...)
		if code := p.wait(l.t, time.Minute); code != exit.OK {
			l.t.Fatalf("exit code %d\n%s", code, p.said())
		}
		time.Sleep(l.train)
	}
	return time.Since(began)
}

// TestLoop logs the time of a training loop of 20 iterations of 32 samples: with a warm collector
// on-policy and one step off, and with one call of ROLLOUT_OLD per iteration.
func TestLoop(t *testing.T) { //nolint:paralleltest // it has the machine for itself
	bin, old := os.Getenv("ROLLOUT_NEW"), os.Getenv("ROLLOUT_OLD")
	if bin == "" {
		t.Skip("takes four minutes: run make loop")
	}
	l := newLoop(t, 20, "400ms~0.8", time.Second, "--tokenizer", modelFolder(t))
	on, over := l.onPolicy(bin)
	slices.Sort(over)
	t.Logf("on-policy: %.1f s; an iteration takes %v longer than its slowest sample (median; most %v)", on.Seconds(), over[len(over)/2].Round(time.Millisecond), over[len(over)-1].Round(time.Millisecond))
	off := l.oneStepOff(bin)
	t.Logf("one step off: %.1f s, %.2f times as fast as on-policy (want 1.3)", off.Seconds(), on.Seconds()/off.Seconds())
	if old != "" {
		calls := l.calls(old)
		t.Logf("a loop of calls of %s: %.1f s; on-policy is %.2f times as fast, one step off %.2f (want 2)", filepath.Base(old), calls.Seconds(), calls.Seconds()/on.Seconds(), calls.Seconds()/off.Seconds())
	}
}

// An iteration of 32 samples on a warm collector makes only the requests of its samples, at most
// one sync of the write-ahead log per sample, and one commit per group.
func TestGateLoop(t *testing.T) {
	t.Parallel()
	const iterations = 4
	l := newLoop(t, iterations, "5ms..600ms", 0)
	s := startStream(t, "rollout", filepath.Join(t.TempDir(), "run"), append(l.args, "--metrics-addr", "127.0.0.1:0")...)
	var requests []map[string]int64
	for n := range iterations {
		s.give(l.tasks[n*loopTasks : (n+1)*loopTasks]...)
		s.ack(s.take(loopTasks)[loopTasks-1])
		waitFor(t, "the agents to be removed", func() bool { return l.sim.Stats().AgentsAlive == 0 })
		now := l.sim.Stats().Requests
		requests = append(requests, maps.Clone(now))
		if n > 0 {
			for route, was := range requests[n-1] {
				now[route] -= was
			}
			each := map[string]int64{}
			for route, times := range now {
				if times != 0 {
					each[route] = times
				}
			}
			const all = loopTasks * loopSamples
			if want := map[string]int64{"POST /v1/agents/": all, "POST /v1/agents/{id}/messages": all, "DELETE /v1/agents/{id}": all}; !maps.Equal(each, want) {
				t.Errorf("iteration %d makes requests %v, want three for each sample", n+1, each)
			}
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
