package agent_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

// TestCleanKeeps checks that Clean spares the agents of attempts that will be taken over.
func TestCleanKeeps(t *testing.T) {
	t.Parallel()
	l, web := simulated(t, lettasim.Config{}, nil)
	b := backendAt(t, web.URL, agent.Config{})
	for n := 1; n <= 3; n++ {
		orphan(t, b, n)
	}
	kept := 0
	n, err := agent.Clean(t.Context(), b.Client(), "run-r", func(a *letta.AgentState) bool {
		key, attempt := agent.AttemptOf(a)
		if key != "sums-0001" {
			t.Errorf("agent of key %q", key)
		}
		if attempt == 2 {
			kept++
		}
		return attempt == 2
	})
	if err != nil || n != 2 || kept != 1 || l.sim.Stats().AgentsAlive != 1 {
		t.Errorf("%d deleted, %d kept, %d alive, %v; want 2, 1 and 1", n, kept, l.sim.Stats().AgentsAlive, err)
	}
	if n, err = agent.Clean(t.Context(), b.Client(), "run-r", nil); err != nil || n != 1 {
		t.Errorf("%d deleted, %v", n, err)
	}
}

// TestClean checks that agents without the tag stay even if the server ignores the filter.
func TestClean(t *testing.T) {
	t.Parallel()
	const agents = `[{"id":"agent-a","tags":["rollout","rollout-run:r1"]},{"id":"agent-b","tags":["precious"]},{"id":"agent-c","tags":["rollout","rollout-run:r2"]}]`
	for _, test := range []struct {
		run  string
		want []string
	}{{"r1", []string{"agent-a"}}, {"", []string{"agent-a", "agent-c"}}, {"r3", nil}} {
		var gone []string
		c := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				gone = append(gone, strings.TrimPrefix(r.URL.Path, "/v1/agents/"))
				return
			}
			_, _ = io.WriteString(w, agents) // this server ignores tags and cursors
		})
		n, err := agent.Clean(t.Context(), c, test.run, nil)
		if err != nil || n != len(test.want) || !slices.Equal(gone, test.want) {
			t.Errorf("Clean(%q) = %d, %v, deleted %v, want %v", test.run, n, err, gone, test.want)
		}
	}
}
