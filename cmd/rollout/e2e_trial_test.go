package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// An interrupt during the trial call ends the program and leaves nothing behind.
func TestTrialInterrupted(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Latency: lettasim.Latency{Low: time.Hour}})
	url := serveSim(t, sim)
	tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"a","prompt":"Hi."}`+"\n"))
	out := t.TempDir() + "/run"
	p := startProgram(t, "rollout", nil, "collect", "--server", url, "--model", simModel, "--tasks", tasks, "--out", out)
	waitFor(t, "the call", func() bool { return sim.Stats().InFlight == 1 })
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t, 90*time.Second); code != exit.Interrupted || !strings.Contains(p.said(), "interrupted before the run started") {
		t.Errorf("exit %d: %s", code, p.said())
	}
	if runfolder.Exists(out) || sim.Stats().AgentsAlive != 0 {
		t.Errorf("a run is there: %v; %d agents live", runfolder.Exists(out), sim.Stats().AgentsAlive)
	}
}

// An interrupt during the trial of a stream's first task ends the run. All accepted tasks remain,
// because none was started.
func TestTrialOfStreamInterrupted(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Latency: lettasim.Latency{Low: time.Hour}})
	url := serveSim(t, sim)
	tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"a","prompt":"Hi."}
{"id":"b","prompt":"Hi."}
{"id":"c","prompt":"Hi."}
`))
	out := t.TempDir() + "/run"
	p := startProgram(t, "rollout", nil, "collect", "--stream", "--json", "--samples", "2", "--server", url, "--model", simModel, "--tasks", tasks, "--out", out)
	waitFor(t, "the tasks and the call", func() bool {
		return strings.Count(p.stdout.String(), `"event":"accepted"`) == 3 && sim.Stats().InFlight == 1
	})
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	code := p.wait(t, 90*time.Second)
	if code != exit.Interrupted || !strings.Contains(p.said(), "interrupted: 6 of 6 samples remain") || !strings.Contains(p.said(), "continue with: ") {
		t.Errorf("exit %d: %s", code, p.said())
	}
}
