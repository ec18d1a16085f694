package main

import (
	"io"
	"net/http/httptest"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// Agents whose create was given up half way have no one who closes them: sweep
// removes those of this run, and no others.
func TestSweep(t *testing.T) {
	t.Parallel()
	sim, err := lettasim.New(lettasim.Config{InputIDs: true})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)
	c := &collection{config: config.Default(), display: &display{mode: displayQuiet, talk: io.Discard}, info: runInfo{ID: "mine"}, leftovers: &leftovers{}}
	c.config.Server.URLs = []string{server.URL}
	c.config.Agent.Model = "sglang//models/qwen3"
	if c.clients, err = connect(c.config, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.clients[0].CloseIdle)
	backend, err := agent.NewBackend(c.clients[0], agent.Config{Model: c.config.Agent.Model})
	if err != nil {
		t.Fatal(err)
	}
	task := &collector.Task{ID: "a", Messages: []string{"Hi."}}
	for _, run := range []string{"mine", "mine", "other"} {
		if _, err := backend.Open(t.Context(), collector.Attempt{Task: task, Key: "k", GroupSize: 1, N: 1, RunID: run}); err != nil {
			t.Fatal(err)
		}
	}
	if left := c.sweep(t.Context(), 0, answering); left != 0 {
		t.Errorf("sweep left %d", left)
	}
	if alive := sim.Stats().AgentsAlive; alive != 1 {
		t.Errorf("%d agents alive, want 1: the other run's", alive)
	}
	c.info.ID = "other"
	if left := c.sweep(t.Context(), 3, func(endpoint string) bool { return endpoint == server.URL }); left != 3 {
		t.Errorf("of 3 agents on a mute server %d are said to be left", left)
	}
	c.config.Agent.Keep = true
	c.sweep(t.Context(), 0, answering)
	if alive := sim.Stats().AgentsAlive; alive != 1 {
		t.Errorf("agent.keep is not heeded")
	}
}

// answering says that no server is mute.
func answering(string) bool { return false }
