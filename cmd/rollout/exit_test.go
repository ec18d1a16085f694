package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
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
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

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
	noError(t, os.Truncate(shards[0], 100))
	held := must(runfolder.TakeLock(filepath.Join(dir, "good"), 0o600))(t)
	defer func() { _ = held.Close() }() // end of the test

	help := mustRun(t, exit.OK, "collect", "--help").stdout
	for _, tt := range []struct {
		name string
		code int
		args []string
		want string // text in stderr
	}{
		{"all is committed", exit.OK, collect(url, "new"), "committed        2"},
		{"stdout is closed", exit.Internal, []string{"config", "show"}, "bad file descriptor"},
		{"unknown flag", exit.Usage, []string{"collect", "--resme"}, "did you mean --resume?"},
		{"some failed", exit.Failures, collect(failingURL, "some", "--fail-on-error", "1"), "1 of 2 samples failed (allowed: 1)"},
		{"too many failed", exit.Tolerance, collect(failingURL, "many"), "1 of 2 samples failed (allowed: 0)"},
		{"no server", exit.Unusable, collect("http://127.0.0.1:1", "none"), "check that the server is running"},
		{"no room for the folder", exit.Storage, append(collect(url, "x"), "--out", "/proc/rollout"), "/proc/rollout"},
		{"a run is there", exit.Folder, collect(url, "broken"), "--resume"},
		{"another run", exit.Folder, collect(url, "broken", "--resume", "--drift", "reject"), "tokens.drift: the run has fork, but you set reject"},
		{"locked", exit.Locked, collect(url, "good", "--resume"), fmt.Sprintf("process %d on ", os.Getpid())},
		{"damaged", exit.Verify, []string{"verify", filepath.Join(dir, "broken")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProcess(t, "rollout", nil, tt.args...)
			if tt.code == exit.Internal {
				read, write := pipe(t)
				defer func() { _ = errors.Join(read.Close(), write.Close()) }() // end of the test
				p.cmd.Stdout = read                                             // cannot be written to
			}
			p.start(t)
			if code := p.wait(t, time.Minute); code != tt.code || !strings.Contains(p.stderr.String(), tt.want) {
				t.Errorf("exit code %d, want %d with %q\n%s", code, tt.code, tt.want, p.said())
			}
			contains(t, help, fmt.Sprintf("\n  %3d  ", tt.code))
		})
	}
}

func mustFaults(t *testing.T, texts ...string) lettasim.Faults {
	t.Helper()
	var faults lettasim.Faults
	for _, text := range texts {
		faults = append(faults, must(lettasim.ParseFault(text))(t))
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
			url := serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete && slow.Load() {
					<-r.Context().Done()
				}
				sim.ServeHTTP(w, r)
			}))
			dir, args := collectArgs(t, sim, url, 200, "--max-in-flight", "8", "--preflight", "connect")
			run := startProgram(t, "rollout", nil, args...)
			waitFor(t, "sends", func() bool { return sim.Stats().InFlight > 0 })
			slow.Store(tt.name == "left")
			said := []string{"draining: waiting at most 5m00s for ", "stopping: interrupted", "exiting now"}
			for i, sig := range tt.signals {
				run.signal(t, sig, said[i])
			}
			if code := run.wait(t, 2*time.Minute); code != exit.Interrupted || !strings.Contains(run.said(), tt.want) {
				t.Errorf("exit code %d, want %d with %q\n%s", code, exit.Interrupted, tt.want, run.said())
			}
			contains(t, run.said(), "rollout collect --resume --out "+dir)
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
			url := serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && r.URL.Query().Has("tags") && sim.Stats().Answered == 4 {
					looking <- struct{}{}
					select {
					case <-release:
					case <-r.Context().Done():
					}
				}
				sim.ServeHTTP(w, r)
			}))
			dir, args := collectArgs(t, sim, url, 4, "--preflight", "connect")
			run := startProgram(t, "rollout", nil, args...)
			waitFor(t, "a look for agents", func() bool { return len(looking) > 0 })
			for _, said := range tt.said {
				run.signal(t, os.Interrupt, said)
			}
			close(release)
			run.ends(t, 2*time.Minute, tt.want)
			if _, err := os.Stat(filepath.Join(dir, runfolder.ReportFile)); (err == nil) != (tt.want == exit.OK) {
				t.Errorf("report: %v", err)
			}
			mustRun(t, exit.OK, "verify", dir)
		})
	}
}

// An error is printed once, and gives the exit code.
func TestReport(t *testing.T) {
	t.Parallel()
	full := &sink.ShardError{Path: "x", Op: "write", Err: &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}}
	x, y := errors.New("x"), errors.New("y")
	for _, tt := range []struct {
		err  error
		code int
		want string // empty: any text
	}{
		{nil, exit.OK, ""},
		{x, exit.Internal, "rollout: x\n"},
		{exit.Usagef("x"), exit.Usage, ""},
		{fmt.Errorf("y: %w", exit.Usagef("x")), exit.Usage, ""},
		{exit.With(exit.Storage, exit.Usagef("x")), exit.Usage, ""}, // the inner code is kept
		{exit.Hint(exit.With(exit.Folder, x), "h"), exit.Folder, "rollout: x\nhint: h\n"},
		{full, exit.Storage, ""},
		{fmt.Errorf("%w: %w", collector.ErrStorage, full), exit.Storage, ""},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, exit.Storage, ""},
		{fmt.Errorf("x: %w", collector.ErrAuth), exit.Unusable, ""},
		{fmt.Errorf("x: %w", collector.ErrUnavailable), exit.Unusable, ""},
		{collector.ErrTolerance, exit.Tolerance, ""},
		{context.Canceled, exit.Interrupted, ""},
		{exit.SilentError(exit.Verify), exit.Verify, "-"},
		{exit.Hint(fmt.Errorf("z: %w", exit.Hint(exit.Usagef("x"), "do y")), "do w"), exit.Usage, "rollout: z: x\nhint: do y\n"}, // the inner hint is kept
		{exit.Refuse(exit.Usage, exit.Complaints{x, y}, "mend"), exit.Usage, "rollout: x\nrollout: y\nhint: mend\n"},
		{exit.Hint(errors.Join(x, exit.Usagef("y")), "do z"), exit.Usage, "rollout: x\nrollout: y\nhint: do z\n"},
		{fmt.Errorf("%w: %w", x, y), exit.Internal, "rollout: x: y\n"},
		{fmt.Errorf("x: %w", errors.New("\x1b[2J\r\nrollout: all is well\n")), exit.Internal, `rollout: x: \u001b[2J rollout: all is well` + "\n"},
	} {
		var stderr bytes.Buffer
		p := &program{stderr: termsafe.NewWriter(&stderr)}
		code := p.report(tt.err)
		if said := cmp.Or(stderr.String(), "-"); code != tt.code || tt.want != "" && said != tt.want {
			t.Errorf("%v: exit code %d, want %d, and\n%s\nwant:\n%s", tt.err, code, tt.code, said, tt.want)
		}
	}
}

// An interrupt during the trial call ends the program. A batch leaves nothing behind. A stream keeps
// its accepted tasks, and none was started.
func TestTrialInterrupted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		flags []string
		says  []string
	}{
		"batch":  {nil, []string{"interrupted before the run started"}},
		"stream": {[]string{"--stream", "--json"}, []string{"interrupted: 6 of 6 samples remain", "continue with: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := newSim(t, lettasim.Config{InputIDs: true, Latency: lettasim.Latency{Low: time.Hour}})
			tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"a","prompt":"Hi."}
{"id":"b","prompt":"Hi."}
{"id":"c","prompt":"Hi."}
`))
			out := t.TempDir() + "/run"
			p := startProgram(t, "rollout", nil, append([]string{
				"collect", "--server", serveSim(t, sim), "--model", simModel, "--samples", "2", "--tasks", tasks, "--out", out,
			}, tt.flags...)...)
			waitFor(t, "the tasks and the call", func() bool {
				return sim.Stats().InFlight == 1 && (tt.flags == nil || strings.Count(p.stdout.String(), `"event":"accepted"`) == 3)
			})
			p.signal(t, syscall.SIGINT, "")
			p.ends(t, 90*time.Second, exit.Interrupted)
			contains(t, p.said(), tt.says...)
			if tt.flags == nil && (runfolder.Exists(out) || sim.Stats().AgentsAlive != 0) {
				t.Errorf("a run is there: %v; %d agents live", runfolder.Exists(out), sim.Stats().AgentsAlive)
			}
		})
	}
}

// A read-only command without a reader ends silently with SIGPIPE, like any command in a pipe.
func TestDryRunWithoutReader(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 2}))
	dryRun := []string{"collect", "--dry-run", "--server", serveSim(t, sim), "--model", simModel, "--tasks", tasks, "--out", filepath.Join(t.TempDir(), "run")}
	for _, args := range [][]string{{"version"}, dryRun, append(dryRun, "--json")} {
		r, w := pipe(t)
		noError(t, r.Close())
		var stderr lockedBuffer
		cmd := exec.CommandContext(t.Context(), "rollout", args...)
		cmd.Stdout, cmd.Stderr = w, &stderr
		err := errors.Join(cmd.Run(), w.Close())
		state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || !state.Signaled() || state.Signal() != syscall.SIGPIPE || stderr.String() != "" {
			t.Errorf("%v ends with %v, want SIGPIPE\n%s", args, err, stderr.String())
		}
	}
}
