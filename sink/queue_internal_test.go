package sink

import (
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

// TestQueueThatIsNeverEmpty tests that a queue that is never empty keeps its order and frees memory.
func TestQueueThatIsNeverEmpty(t *testing.T) {
	t.Parallel()
	q := newQueue()
	push := func(n int) {
		must(t, q.push(accepted{sample: &tokenize.Sample{Index: int32(n)}}))
	}
	const behind = 5
	for n := range behind {
		push(n)
	}
	for n := range 10_000 {
		push(n + behind)
		a, ok, ended := q.pop()
		if !ok || ended || a.sample.Index != int32(n) {
			t.Fatalf("pop() = %v, %t, %t, want sample %d", a.sample, ok, ended, n)
		}
	}
	if c := cap(q.list); c > 16*behind {
		t.Errorf("room for %d samples, %d wait", c, behind)
	}
}
