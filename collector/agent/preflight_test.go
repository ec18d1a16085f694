package agent_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/record"
)

// TestTry checks that Try makes one call, calls look while the agent exists, and always removes
// the agent.
func TestTry(t *testing.T) {
	t.Parallel()
	sim, err := lettasim.New(lettasim.Config{InputIDs: true, Script: lettasim.Script{Calls: lettasim.Range{Min: 5, Max: 5}}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)
	client, err := letta.NewClient(letta.ClientConfig{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	b, err := agent.NewBackend(client, agent.Config{Model: "sglang//models/qwen3", Keep: true, MaxSteps: 9})
	if err != nil {
		t.Fatal(err)
	}
	task := &collector.Task{ID: "a", Messages: []string{"Add 1 and 2.", "And once more."}}
	no := errors.New("no")
	for _, want := range []error{nil, no} {
		looked := 0
		err := b.Try(t.Context(), task, 1, func(_ context.Context, r *collector.Reply, _ *record.Rollout) error {
			looked++
			if len(r.Sends) != 1 || r.Sends[0].Usage.Steps != 1 || len(r.Sends[0].Turns) == 0 {
				t.Errorf("%d sends, %d steps", len(r.Sends), r.Sends[0].Usage.Steps)
			}
			if sim.Stats().AgentsAlive != 1 {
				t.Error("the agent is gone already")
			}
			return want
		})
		if !errors.Is(err, want) || looked != 1 {
			t.Errorf("Try = %v after %d looks, want %v after one", err, looked, want)
		}
		if s := sim.Stats(); s.AgentsAlive != 0 {
			t.Errorf("%d agents are left", s.AgentsAlive)
		}
	}
	if len(task.Messages) != 2 {
		t.Error("the task was changed")
	}
}
