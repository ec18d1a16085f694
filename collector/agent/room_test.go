package agent_test

import (
	"testing"

	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// TestHeldReplies checks that others wait until an agent is closed, which releases all its
// replies.
func TestHeldReplies(t *testing.T) {
	t.Parallel()
	_, s := simulated(t, lettasim.Config{Seed: 1}, nil)
	b := backendAt(t, s.URL, agent.Config{MaxHeldBytes: 1}) // every reply is larger and passes alone
	first := opened(t, b, scripted(0))
	reply, err := first.Run(t.Context())
	if err != nil || len(reply.Sends) != 2 {
		t.Fatalf("%d sends, %v, want 2: a later reply must not wait", len(reply.Sends), err)
	}
	second := opened(t, b, scripted(1))
	ran := make(chan error, 1)
	go func() {
		_, err := second.Run(t.Context())
		ran <- err
	}()
	if !agent.Held(b) {
		t.Error("an agent with its replies holds nothing")
	}
	closeAgent(t, first)
	if err := <-ran; err != nil {
		t.Errorf("the agent that waited: %v", err)
	}
	closeAgent(t, second)
	if agent.Held(b) {
		t.Error("something is held after all agents were closed")
	}
}
