package agent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/record"
)

// TestTry checks that Try makes one call, calls look while the agent exists, and always removes
// the agent.
func TestTry(t *testing.T) {
	t.Parallel()
	l, web := simulated(t, lettasim.Config{Script: lettasim.Script{Calls: lettasim.Range{Min: 5, Max: 5}}}, nil)
	b := backendAt(t, web.URL, agent.Config{Keep: true, MaxSteps: 9})
	task := &collector.Task{ID: "a", Messages: []string{"Add 1 and 2.", "And once more."}}
	no := errors.New("no")
	for _, want := range []error{nil, no} {
		looked := 0
		err := b.Try(t.Context(), task, 1, func(_ context.Context, r *collector.Reply, _ *record.Rollout) error {
			looked++
			if len(r.Sends) != 1 || r.Sends[0].Usage.Steps != 1 || len(r.Sends[0].Turns) == 0 {
				t.Errorf("%d sends, %d steps", len(r.Sends), r.Sends[0].Usage.Steps)
			}
			if l.sim.Stats().AgentsAlive != 1 {
				t.Error("the agent is gone already")
			}
			return want
		})
		if !errors.Is(err, want) || looked != 1 {
			t.Errorf("Try = %v after %d looks, want %v after one", err, looked, want)
		}
		if s := l.sim.Stats(); s.AgentsAlive != 0 {
			t.Errorf("%d agents are left", s.AgentsAlive)
		}
	}
	if len(task.Messages) != 2 {
		t.Error("the task was changed")
	}
}
