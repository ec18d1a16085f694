package main

import (
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// TestEngineAway: where the engine behind the server is away, the server's address is
// not what is wrong, and the text does not say so.
func TestEngineAway(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{Faults: lettasim.Faults{{Kind: lettasim.EngineDown, Rate: 1, Attempts: 99}}})
	url := serveSim(t, sim)
	r := invoke(t.Context(), "doctor", "--server", url, "--model", simModel)
	all := r.stdout + r.stderr
	if r.code != exit.Unusable || !strings.Contains(all, "its model engine (http://127.0.0.1:30000/generate) failed") ||
		!strings.Contains(all, "hint: the Letta server is there: look at the model engine behind it") {
		t.Errorf("exit code %d\n%s", r.code, all)
	}
	if strings.Contains(all, "is the address right") {
		t.Errorf("the address of the server is blamed:\n%s", all)
	}
}
