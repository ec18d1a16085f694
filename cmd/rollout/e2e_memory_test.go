package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// With 512 samples in flight, the memory of the collecting process does not grow with the number of
// samples. The server is another process.
func TestGateManySamplesMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 seconds: run without -short")
	}
	if raceEnabled {
		t.Skip("the race detector takes memory of its own: run without -race")
	}
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc, which is Linux's")
	}
	const tasks, samples, inFlight = 500, 8, 512
	cfg := lettasim.Config{InputIDs: true, BodyCache: 64, Script: lettasim.Script{Tokens: lettasim.Range{Min: 800, Max: 1000}}}
	cfg.Latency = latencyOf(t, "500ms..1s")
	sim := newSim(t, cfg)
	url := serveSim(t, sim)
	dir := filepath.Join(t.TempDir(), "run")
	cmd := exec.CommandContext(t.Context(), "rollout", "collect", "--server", url, "--model", simModel, "--out", dir,
		"-c", writeFile(t, "run.yaml", []byte("output: {shard_age: 1s}\nserver: {adaptive: false}\n")),
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: tasks})),
		"--samples", fmt.Sprint(samples), "--max-in-flight", fmt.Sprint(inFlight), "--quiet")
	cmd.Env = append(os.Environ(), "GOGC=25") // so that resident memory is close to used memory
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var seen []point
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case err := <-done:
			tick.Stop()
			if err != nil {
				t.Fatalf("%v\n%s%s", err, stderr.String(), invoke(t.Context(), "inspect", dir, "--failures").stdout)
			}
			checkFlat(t, seen, tasks*samples, inFlight)
			s := sim.Stats()
			t.Logf("%d replies of %d bytes on average", s.Answered, s.BytesSent/s.Answered)
			return
		case <-tick.C:
			n := int(sim.Stats().AgentsDeleted)
			if bytes := resident(cmd.Process.Pid); bytes > 0 && (len(seen) == 0 || n >= seen[len(seen)-1].samples+50) {
				seen = append(seen, point{n, bytes})
			}
		}
	}
}

type point struct {
	samples int
	bytes   int64
}

func (p point) String() string { return fmt.Sprintf("%d:%.1fMB", p.samples, float64(p.bytes)/1e6) }

// resident returns the memory of a process that is not shared with its file, or 0 if the process
// has ended.
func resident(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var size, rss, shared int64
	if n, _ := fmt.Sscan(string(b), &size, &rss, &shared); n < 3 {
		return 0
	}
	return (rss - shared) * int64(os.Getpagesize())
}

// checkFlat compares the two halves of the time with a constant number of samples in flight,
// without the warm-up.
func checkFlat(t *testing.T, seen []point, total, inFlight int) {
	t.Helper()
	t.Logf("resident by samples: %v", seen)
	var first, second []int64
	from, to := inFlight, total-inFlight
	for _, p := range seen {
		switch {
		case p.samples < from || p.samples > to:
		case p.samples < (from+to)/2:
			first = append(first, p.bytes)
		default:
			second = append(second, p.bytes)
		}
	}
	if len(first) < 3 || len(second) < 3 {
		t.Fatalf("the memory was seen at %d and %d points: too few to compare", len(first), len(second))
	}
	slices.Sort(first)
	slices.Sort(second)
	a, b := first[len(first)/2], second[len(second)/2]
	if b > a+a/8+2<<20 {
		t.Errorf("the process grew from %.1f MB to %.1f MB within %d samples", float64(a)/1e6, float64(b)/1e6, (to-from)/2)
	}
}

// A run with six samples and a limit of ten million in flight prints one line and needs no extra
// memory.
func TestGateMemoryOfMillionsInFlight(t *testing.T) {
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	dir := filepath.Join(t.TempDir(), "run")
	cmd := exec.CommandContext(t.Context(), "rollout", "collect", "--server", serveSim(t, sim), "--model", simModel, "--out", dir,
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 50})), "--limit", "6", "--max-in-flight", "10000000")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	peak := peakOf(cmd.Process.Pid)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	most := peak()
	if n := strings.Count(stderr.String(), "max_in_flight"); n != 1 || !strings.Contains(stderr.String(), "max_in_flight lowered from 10000000 to 6: the run has 6 samples\n") {
		t.Errorf("it is printed %d times:\n%s", n, stderr.String())
	}
	if runtime.GOOS != "linux" || raceEnabled {
		t.Skip("needs the resident memory of a process as Linux gives it, without the race detector")
	}
	if most > 128<<20 || most == 0 {
		t.Errorf("the process took %d MB", most>>20)
	}
	t.Logf("%d MB", most>>20)
}
