package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// If one of two servers disappears for good during a run, its samples continue on the other within
// seconds, and no sample loses a retry.
func TestSamplesMoveFromDeadServer(t *testing.T) {
	t.Parallel()
	const tasks, samples = 10, 12
	latency := latencyOf(t, "300ms..900ms")
	cfg := lettasim.Config{InputIDs: true, Script: killScript(), Latency: latency}
	dies, stays := newSim(t, cfg), newSim(t, cfg)
	g := newGateway(t, serveSim(t, dies))
	dir := filepath.Join(t.TempDir(), "run")
	p := startProgram(t, "rollout", nil, "collect", "--server", g.url(), "--server", serveSim(t, stays), "--model", simModel, "--out", dir,
		"--max-in-flight", "6", "--retries", "0", "--samples", fmt.Sprint(samples),
		"--tasks", writeFile(t, "tasks.jsonl", dies.Tasks(lettasim.TaskOptions{Scripted: tasks})))
	waitFor(t, "samples in flight", func() bool { return dies.Stats().InFlight >= 6 && dies.Stats().Answered >= 6 || !p.alive() })
	g.down()
	gone := time.Now()
	if code := p.wait(t, 90*time.Second); code != exit.OK {
		t.Errorf("exit code %d\n%s", code, p.said())
	}
	took := time.Since(gone)
	got := readDataset(t, dir)
	if len(got.rows) != tasks*samples || len(got.failures) != 0 {
		t.Errorf("%d samples are data and %d failed", len(got.rows), len(got.failures))
	}
	for key, n := range got.keys() {
		if n != 1 {
			t.Errorf("sample %s is there %d times", key, n)
		}
	}
	if took > time.Minute {
		t.Errorf("the run took %v more: what was at the dead server waited", took)
	}
	if !strings.Contains(p.said(), g.url()+" is down: ") {
		t.Errorf("no message was printed:\n%s", p.said())
	}
	t.Logf("%v after the server was gone", took.Round(time.Millisecond))
}
