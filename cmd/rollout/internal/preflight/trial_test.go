package preflight

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/prompt"
)

// trialOn is the trial of a run without a tokenizer, on a simulated server.
func trialOn(t *testing.T, sim *lettasim.Server) (_ *Trial, _ *agent.Backend, said func() string) {
	t.Helper()
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)
	c := config.Default()
	c.Server.URLs, c.Agent.Model = []config.Server{{URL: server.URL}}, "sglang//models/qwen3"
	client, err := letta.NewClient(letta.ClientConfig{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdle)
	backend, err := agent.NewBackend(client, agent.Config{Model: c.Agent.Model})
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
	one, err := NewTrial(c, prompt.Config{}, collector.Config{}, &collector.Task{ID: "a", Messages: []string{"Hi.", "And again."}}, say)
	if err != nil {
		t.Fatal(err)
	}
	said = func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(lines, "\n")
	}
	return one, backend, said
}

// A slow engine is waited for, with words and not for ever; then the run begins, and the
// agent is gone.
func TestTrialIsBounded(t *testing.T) {
	t.Parallel()
	sim := simulated(t, lettasim.Config{InputIDs: true, Latency: lettasim.Latency{Low: time.Hour}})
	trial, backend, said := trialOn(t, sim)
	trial.timeout, trial.quiet = 300*time.Millisecond, 10*time.Millisecond
	if answered, err := trial.server(t.Context(), backend, "0.16.7"); err != nil || answered {
		t.Errorf("the run is refused, or has an answer: %v, %v", answered, err)
	}
	for _, want := range []string{"to answer one call of the model, at most 300ms; --preflight connect leaves that out", "the run begins without that check: ", "no answer within 300ms"} {
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
	lost, err := lettasim.ParseFault("lost@a/-1/1")
	if err != nil {
		t.Fatal(err)
	}
	sim := simulated(t, lettasim.Config{InputIDs: true, Faults: []lettasim.Fault{lost}, Script: lettasim.Script{Calls: lettasim.Range{Min: 4, Max: 4}}, KeepAnswers: true})
	trial, backend, said := trialOn(t, sim)
	if answered, err := trial.server(t.Context(), backend, "0.16.7"); err != nil || !answered {
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

func simulated(t *testing.T, c lettasim.Config) *lettasim.Server {
	t.Helper()
	sim, err := lettasim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return sim
}
