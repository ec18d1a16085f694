package sink

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// TestWhole tests that a group becomes whole with the last of its indexes, in any order and with
// repetitions. An index out of range does not count.
func TestWhole(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 0))
	for _, size := range []int{2, 3, 8, 65, 1000} {
		for _, twice := range []int{0, 1, size / 2, size - 1} {
			order := rng.Perm(size)
			last := int32(order[size-1])
			before := append(order[:size-1:size-1], order[:twice]...)
			rng.Shuffle(len(before), func(i, k int) { before[i], before[k] = before[k], before[i] })
			h := hold{groups: map[string]*heldGroup{}}
			add := func(index int32) *heldGroup {
				return h.add(accepted{sample: &tokenize.Sample{GroupID: "g", GroupSize: int32(size), Index: index}}, time.Time{})
			}
			for _, index := range append(before, -1, size, 1<<30) {
				if g := add(int32(index)); g.whole() {
					t.Fatalf("%d of %d, %d twice: whole without %d", len(g.list), size, twice, last)
				}
			}
			g := add(last)
			if !g.whole() {
				t.Fatalf("%d of %d, %d twice: not whole", len(g.list), size, twice)
			}
			for range len(g.list) {
				h.take(g)
			}
			if len(h.groups)+len(h.list)+h.n > 0 {
				t.Fatalf("%d samples are held after the last was taken", h.n)
			}
		}
	}
}
