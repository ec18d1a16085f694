package main

import (
	"io"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// While a resumed run is at work, only agents that belong to nobody are removed: not
// those of attempts that may be taken over, nor those that it makes itself. At its end
// the former alone stay.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	c := &collection{config: config.Default(), display: &display{mode: displayQuiet, talk: io.Discard}, log: discardLog()}
	c.info = runInfo{ID: "mine", Invocations: make([]invocation, 2)}
	c.config.Server.URLs = []string{serveSim(t, sim)}
	var err error
	if c.clients, err = connect(c.config, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.clients[0].CloseIdle)
	backend, err := agent.NewBackend(c.clients[0], agent.Config{Model: simModel})
	if err != nil {
		t.Fatal(err)
	}
	// An earlier process began attempt 2 at every sample; that at "open" has no end.
	c.leftovers = &leftovers{last: func(string) int { return 2 }, open: map[string]int{"open": 2}}
	for _, a := range []struct {
		key string
		n   int
	}{{"open", 1}, {"open", 2}, {"dead", 2}, {"dead", 3}} {
		task := &collector.Task{ID: a.key, Messages: []string{"Hi."}}
		if _, err := backend.Open(t.Context(), collector.Attempt{Task: task, Key: a.key, GroupSize: 1, N: a.n, RunID: "mine"}); err != nil {
			t.Fatal(err)
		}
	}
	alive := func() (left []string) {
		t.Helper()
		err := agent.EachAgentOf(t.Context(), c.clients[0], "mine", func(a *letta.AgentState) error {
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
	c.clearLeftovers(t.Context())
	if got, want := alive(), []string{"dead/3", "open/2"}; !slices.Equal(got, want) {
		t.Errorf("at work: %q are left, want %q", got, want)
	}
	c.sweep(t.Context(), 0, answering)
	if got, want := alive(), []string{"open/2"}; !slices.Equal(got, want) {
		t.Errorf("at the end: %q are left, want %q", got, want)
	}
	taken := collector.Attempt{Key: "open", N: 2, Kind: collector.KindReattach}
	c.leftovers.finished(taken, collector.ErrUnavailable)
	c.sweep(t.Context(), 0, answering)
	if got, want := alive(), []string{"open/2"}; !slices.Equal(got, want) {
		t.Errorf("while its server did not answer: %q are left, want %q", got, want)
	}
	c.leftovers.finished(taken, nil)
	c.sweep(t.Context(), 0, answering)
	if got := alive(); len(got) != 0 {
		t.Errorf("once it was taken over: %q are left", got)
	}
}
