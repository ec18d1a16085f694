package main

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/prompt"
)

// newTrial is the trial of a run without a tokenizer, on a simulated server.
func newTrial(t *testing.T, sim *lettasim.Server) (_ *trial, _ *agent.Backend, said func() string) {
	t.Helper()
	c := config.Default()
	c.Server.URLs, c.Agent.Model = []string{serveSim(t, sim)}, simModel
	clients, err := connect(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	backends, err := makeBackends(c, clients, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	prompter, err := prompt.New(prompt.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var lines []string
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, fmt.Sprintf(format, args...))
	}
	one := &trial{
		config: c, find: prompter, task: &collector.Task{ID: "a", Messages: []string{"Hi.", "And again."}},
		note: say, timeout: trialTimeout, quiet: trialQuiet,
	}
	said = func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(lines, "\n")
	}
	return one, backends[0], said
}

// A slow engine is waited for, with words and not for ever; then the run begins, and the
// agent is gone.
func TestTrialIsBounded(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Latency: lettasim.Latency{Low: time.Hour}})
	trial, backend, said := newTrial(t, sim)
	trial.timeout, trial.quiet = 300*time.Millisecond, 10*time.Millisecond
	if err := trial.server(t.Context(), backend, "0.16.7"); err != nil {
		t.Errorf("the run is refused: %v", err)
	}
	for _, want := range []string{"to answer one call of the model, at most 300ms; --preflight connect leaves that out", "could not be tried, and the run begins without that: ", "no answer within 300ms"} {
		if !strings.Contains(said(), want) {
			t.Errorf("said %q, want %q", said(), want)
		}
	}
	if s := sim.Stats(); s.AgentsCreated != 1 || s.AgentsAlive != 0 {
		t.Errorf("%d agents were made, %d live", s.AgentsCreated, s.AgentsAlive)
	}
}

// One call is made, whatever the task and the agent would go on to, and nothing is said
// of what is right. What the network lost is tried again.
func TestTrialMakesOneCall(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Faults: mustFaults(t, "lost@a/-1/1"), Script: lettasim.Script{Calls: lettasim.Range{Min: 4, Max: 4}}, KeepAnswers: true})
	trial, backend, said := newTrial(t, sim)
	if err := trial.server(t.Context(), backend, "0.16.7"); err != nil {
		t.Errorf("the run is refused: %v", err)
	}
	if text := said(); strings.Count(text, "\n") != 0 || !strings.Contains(text, "a call of the model failed, trying again in ") {
		t.Errorf("said %q", text)
	}
	if s := sim.Stats(); s.Answered != 1 || s.AgentsAlive != 0 {
		t.Errorf("%d sends were answered, %d agents live", s.Answered, s.AgentsAlive)
	}
	// Four calls of 8 tokens at least would be more.
	if a := sim.Answers(); len(a) != 1 || a[0].Sample != -1 || a[0].Sampled > 200 {
		t.Errorf("answered: %+v", a)
	}
}

// An interrupt while the model is waited for ends the program, and leaves nothing.
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
	if code := p.wait(t, 30*time.Second); code != exit.Interrupted || !strings.Contains(p.said(), "interrupted before the run began") {
		t.Errorf("exit %d: %s", code, p.said())
	}
	if hasRun(out) || sim.Stats().AgentsAlive != 0 {
		t.Errorf("a run is there: %v; %d agents live", hasRun(out), sim.Stats().AgentsAlive)
	}
}
