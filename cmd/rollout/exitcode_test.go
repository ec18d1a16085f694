package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

type started struct {
	*exec.Cmd
	stderr string // path
}

// start starts the built program. Call exit to wait for its end.
func start(t *testing.T, args ...string) *started {
	t.Helper()
	s := &started{Cmd: exec.CommandContext(t.Context(), "rollout", args...), stderr: filepath.Join(t.TempDir(), "stderr")}
	f, err := os.Create(s.stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	s.Stderr = f
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *started) said(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(s.stderr)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// signal sends sig and waits until stderr contains until.
func (s *started) signal(t *testing.T, sig os.Signal, until string) {
	t.Helper()
	if err := s.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	if until != "" {
		waitFor(t, until, func() bool { return strings.Contains(s.said(t), until) })
	}
}

func (s *started) exit(t *testing.T) int {
	t.Helper()
	err := s.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return s.ProcessState.ExitCode()
}

// The built program exits with every code of the table, and the help lists each code.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	url := serveSim(t, sim)
	dir := t.TempDir()
	tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 2}))
	// Two tasks, one of which fails.
	failing := newSim(t, lettasim.Config{InputIDs: true, Faults: mustFaults(t, "short-logprobs@scripted-0001")})
	failingURL := serveSim(t, failing)
	collect := func(url, out string, more ...string) []string {
		return append([]string{"collect", "--server", url, "--model", simModel, "--tasks", tasks, "--out", filepath.Join(dir, out)}, more...)
	}
	for _, args := range [][]string{collect(url, "good"), collect(url, "broken")} {
		mustRun(t, exit.OK, args...)
	}
	shards, err := filepath.Glob(filepath.Join(dir, "broken", "data", "part-*"))
	if err != nil || len(shards) == 0 {
		t.Fatalf("shards %v, %v", shards, err)
	}
	if err := os.Truncate(shards[0], 100); err != nil {
		t.Fatal(err)
	}
	held, err := runfolder.TakeLock(filepath.Join(dir, "good"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }() // end of the test

	help := mustRun(t, exit.OK, "collect", "--help").stdout
	for _, tt := range []struct {
		name string
		code int
		args []string
		want string // text in stderr
	}{
		{"all is committed", exit.OK, collect(url, "new"), "committed        2"},
		{"stdout is closed", exit.Internal, nil, "bad file descriptor"},
		{"unknown flag", exit.Usage, []string{"collect", "--resme"}, "did you mean --resume?"},
		{"some failed", exit.Failures, collect(failingURL, "some", "--fail-on-error", "1"), "1 of 2 samples failed, allowed: 1"},
		{"too many failed", exit.Tolerance, collect(failingURL, "many"), "1 of 2 samples failed, allowed: 0"},
		{"no server", exit.Unusable, collect("http://127.0.0.1:1", "none"), "is the server running"},
		{"no room for the folder", exit.Storage, append(collect(url, "x"), "--out", "/proc/rollout"), "/proc/rollout"},
		{"a run is there", exit.Folder, collect(url, "broken"), "--resume"},
		{"another run", exit.Folder, collect(url, "broken", "--resume", "--drift", "reject"), "tokens.drift: the run has fork, you set reject"},
		{"locked", exit.Locked, collect(url, "good", "--resume"), fmt.Sprintf("process %d on ", os.Getpid())},
		{"damaged", exit.Verify, []string{"verify", filepath.Join(dir, "broken")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := tt.args
			var cmd *started
			if args == nil {
				cmd = startClosed(t)
			} else {
				cmd = start(t, args...)
			}
			if code := cmd.exit(t); code != tt.code || !strings.Contains(cmd.said(t), tt.want) {
				t.Errorf("exit code %d, want %d with %q\n%s", code, tt.code, tt.want, cmd.said(t))
			}
			if !strings.Contains(help, fmt.Sprintf("\n  %3d  ", tt.code)) {
				t.Errorf("the help does not explain %d", tt.code)
			}
		})
	}
}

func startClosed(t *testing.T) *started {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(read.Close(), write.Close()) }() // the program has its own copies
	s := &started{Cmd: exec.CommandContext(t.Context(), "rollout", "config", "show"), stderr: filepath.Join(t.TempDir(), "stderr")}
	f, err := os.Create(s.stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	s.Stderr, s.Stdout = f, read // the read end cannot be written to
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

func mustFaults(t *testing.T, texts ...string) lettasim.Faults {
	t.Helper()
	var faults lettasim.Faults
	for _, text := range texts {
		f, err := lettasim.ParseFault(text)
		if err != nil {
			t.Fatal(err)
		}
		faults = append(faults, f)
	}
	return faults
}

// Each of the three interrupts can end a run. The exit code is the same, and the run can be
// resumed.
func TestThreeInterrupts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		signals []os.Signal
		latency string
		want    string
	}{
		{"drained", []os.Signal{os.Interrupt}, "300ms", "of 200 samples remain"},
		{"stopped", []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, "10m", "of 200 samples remain"},
		{"left", []os.Signal{os.Interrupt, os.Interrupt, os.Interrupt}, "10m", "exiting now"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := lettasim.Config{InputIDs: true}
			cfg.Latency = latencyOf(t, tt.latency)
			sim := newSim(t, cfg)
			var slow atomic.Bool // delays the deletion of agents, so that a stop takes some time
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete && slow.Load() {
					<-r.Context().Done()
				}
				sim.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			dir := filepath.Join(t.TempDir(), "run")
			args := []string{
				"collect", "--server", server.URL, "--model", simModel, "--out", dir, "--max-in-flight", "8", "--preflight", "connect",
				"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 200})),
			}
			run := start(t, args...)
			waitFor(t, "sends", func() bool { return sim.Stats().InFlight > 0 })
			slow.Store(tt.name == "left")
			said := []string{"draining: waiting for ", "stopping: interrupted", "exiting now"}
			for i, sig := range tt.signals {
				run.signal(t, sig, said[i])
			}
			if code := run.exit(t); code != exit.Interrupted || !strings.Contains(run.said(t), tt.want) {
				t.Errorf("exit code %d, want %d with %q\n%s", code, exit.Interrupted, tt.want, run.said(t))
			}
			if !strings.Contains(run.said(t), "rollout collect --resume --out "+dir) {
				t.Errorf("no hint says how to continue:\n%s", run.said(t))
			}
			slow.Store(false)
			again := invoke(t.Context(), "collect", "--resume", "--out", dir, "--dry-run")
			if again.code != exit.OK || !strings.Contains(again.stdout, "planned    200 samples, ") {
				t.Errorf("a dry resume: exit code %d\n%s%s", again.code, again.stdout, again.stderr)
			}
		})
	}
}

// After a run has ended and searches for leftover agents, the first interrupt prints a message and
// changes nothing, and the second one ends the process.
func TestInterruptAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		said []string
		want int
	}{
		{"once", []string{"ending: writing finished samples"}, exit.OK},
		{"twice", []string{"ending: writing finished samples", "exiting now"}, exit.Interrupted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// After a failed attempt, the run searches for leftover agents.
			sim := newSim(t, lettasim.Config{InputIDs: true, Faults: mustFaults(t, "unavailable@scripted-0001/0/1")})
			looking, release := make(chan struct{}, 10), make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && r.URL.Query().Has("tags") && sim.Stats().Answered == 4 {
					looking <- struct{}{}
					select {
					case <-release:
					case <-r.Context().Done():
					}
				}
				sim.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			dir := filepath.Join(t.TempDir(), "run")
			run := start(t, "collect", "--server", server.URL, "--model", simModel, "--out", dir, "--preflight", "connect",
				"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 4})))
			waitFor(t, "a look for agents", func() bool { return len(looking) > 0 })
			for _, said := range tt.said {
				run.signal(t, os.Interrupt, said)
			}
			close(release)
			if code := run.exit(t); code != tt.want {
				t.Errorf("exit code %d, want %d\n%s", code, tt.want, run.said(t))
			}
			if _, err := os.Stat(filepath.Join(dir, runfolder.ReportFile)); (err == nil) != (tt.want == exit.OK) {
				t.Errorf("report: %v", err)
			}
			mustRun(t, exit.OK, "verify", dir)
		})
	}
}

// The next process reports the lock of a killed one.
func TestStaleLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := []byte(`{"pid":4711,"host":"other","started_at":"2026-01-02T03:04:05Z"}`)
	if err := os.WriteFile(filepath.Join(dir, runfolder.LockFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := runfolder.TakeLock(dir, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if l.Stale.PID != 4711 || l.Stale.Host != "other" || !l.Stale.StartedAt.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("stale = %v", l.Stale)
	}
	if _, err := runfolder.TakeLock(dir, 0o600); exit.Code(err) != exit.Locked || !strings.Contains(err.Error(), fmt.Sprintf("process %d on ", os.Getpid())) {
		t.Errorf("a second lock: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, runfolder.LockFile))
	if err != nil || !bytes.Equal(b, nil) {
		t.Errorf("after an orderly end the lock contains %q, %v", b, err)
	}
	if l, err = runfolder.TakeLock(dir, 0o600); err != nil || l.Stale.PID != 0 {
		t.Errorf("a lock after an orderly end: %v, %v", l, err)
	} else if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
