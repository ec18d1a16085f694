//go:build !race

package continuity_test

import "testing"

// TestPromptAllocates proves that a splice allocates little more than its result, and that other
// prompts allocate nothing.
func TestPromptAllocates(t *testing.T) {
	for drift, most := range map[string]float64{"none": 0, "before": 5} {
		table, asked, _ := longChain(t, drift)
		if n := testing.AllocsPerRun(100, func() { table.Prompt(asked) }); n > most {
			t.Errorf("drift %s: %v allocations, want at most %v", drift, n, most)
		}
	}
}
