package harness

import (
	"errors"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/subprocess"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestEngineFailure proves that an answer in another conversation does not hide the failed call that
// ended the command, and that a later answer of the main conversation does.
func TestEngineFailure(t *testing.T) {
	t.Parallel()
	for chain, want := range map[int32]error{0: nil, 1: collector.ErrUnavailable} {
		g := &agent{
			end:    &ending{Result: subprocess.Result{Exit: 1}},
			record: &session.Record{Calls: []session.Call{{Number: 1}, {Number: 2}, {Number: 3}}},
		}
		for i, status := range []int{200, 503, 200} {
			g.record.Calls[i].Status = status
		}
		rollout := &session.Rollout{Number: []int{1, 3}, Calls: []tokenize.Call{{}, {Chain: chain}}}
		if err := g.engineFailure(rollout); !errors.Is(err, want) {
			t.Errorf("chain %d: %v, want %v", chain, err, want)
		}
	}
}
