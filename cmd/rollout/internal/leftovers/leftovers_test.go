package leftovers

import (
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

// A resumed run removes only unused agents while it collects. It keeps agents of attempts that can
// be reattached, and its own. At its end it keeps only the first kind.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	_, client, open := simulated(t)
	// An earlier process began attempt 2 of every sample. The attempt of "open" has no end.
	l := agentsOf("mine", client)
	l.last, l.open = func(string) int { return 2 }, map[string]int{"open": 2, "cut": 2}
	for key, attempts := range map[string][]int{"open": {1, 2}, "cut": {2}, "dead": {2, 3}} {
		for _, n := range attempts {
			open("mine", key, n)
		}
	}
	alive := func() (left []string) {
		t.Helper()
		err := agent.EachAgent(t.Context(), client, "mine", func(a *letta.AgentState) error {
			key, n := agent.AttemptOf(a)
			left = append(left, collector.RolloutID(key, n))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(left)
		return left
	}
	l.Clear(t.Context(), func(string, int, error) {})
	if got, want := alive(), []string{"cut/2", "dead/3", "open/2"}; !slices.Equal(got, want) {
		t.Errorf("in progress: %q are left, want %q", got, want)
	}
	l.Done("cut")
	l.Sweep(t.Context(), 0, answering)
	if got, want := alive(), []string{"open/2"}; !slices.Equal(got, want) {
		t.Errorf("at the end: %q are left, want %q", got, want)
	}
	taken := collector.Attempt{Key: "open", N: 2, Kind: collector.KindReattach}
	l.Finished(taken, collector.ErrUnavailable)
	l.Sweep(t.Context(), 0, answering)
	if got, want := alive(), []string{"open/2"}; !slices.Equal(got, want) {
		t.Errorf("while its server did not answer: %q are left, want %q", got, want)
	}
	l.Finished(taken, nil)
	l.Sweep(t.Context(), 0, answering)
	if got := alive(); len(got) != 0 {
		t.Errorf("once it was taken over: %q are left", got)
	}
}

// Agents whose create request was abandoned have no owner. Sweep removes the agents of this run, and no
// others.
func TestSweep(t *testing.T) {
	t.Parallel()
	sim, client, open := simulated(t)
	l := agentsOf("mine", client)
	for _, run := range []string{"mine", "mine", "other"} {
		open(run, "k", 1)
	}
	if left := l.Sweep(t.Context(), 0, answering); left != 0 {
		t.Errorf("sweep left %d", left)
	}
	if alive := sim.Stats().AgentsAlive; alive != 1 {
		t.Errorf("%d agents alive, want 1: the other run's", alive)
	}
	l.RunID = "other"
	if left := l.Sweep(t.Context(), 3, func(endpoint string) bool { return endpoint == client.BaseURL() }); left != 3 {
		t.Errorf("of 3 agents on a mute server %d are reported as remaining", left)
	}
	l.Keep = true
	l.Sweep(t.Context(), 0, answering)
	if alive := sim.Stats().AgentsAlive; alive != 1 {
		t.Errorf("agent.keep is not heeded")
	}
}

func answering(string) bool { return false }

// simulated returns a simulated server, a client of it, and a function that creates the agent of an attempt
// there.
func simulated(t *testing.T) (_ *lettasim.Server, _ *letta.Client, open func(run, key string, n int)) {
	t.Helper()
	sim, err := lettasim.New(lettasim.Config{InputIDs: true})
	if err != nil {
		t.Fatal(err)
	}
	client := lettatest.Serve(t, sim.ServeHTTP)
	backend, err := agent.NewBackend(client, agent.Config{Model: "sglang//models/qwen3"})
	if err != nil {
		t.Fatal(err)
	}
	return sim, client, func(run, key string, n int) {
		t.Helper()
		task := &collector.Task{ID: key, Messages: []string{"Hi."}}
		if _, err := backend.Open(t.Context(), collector.Attempt{Task: task, Key: key, GroupSize: 1, N: n, RunID: run}); err != nil {
			t.Fatal(err)
		}
	}
}

func agentsOf(runID string, client *letta.Client) *Agents {
	quiet := func(string, ...any) {}
	return &Agents{RunID: runID, Clients: []*letta.Client{client}, Say: quiet, Note: quiet}
}
