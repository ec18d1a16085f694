package tap

import (
	"math"
	"slices"
	"testing"
)

// TestSentinels proves that an engine's value for minus infinity counts as unknown, like NaN.
func TestSentinels(t *testing.T) {
	t.Parallel()
	s := newSeeds()
	ids := []int32{5, 6}
	want := s.of(ids, []float32{-1, float32(math.NaN())})
	for _, v := range []float32{float32(math.Inf(-1)), -math.MaxFloat32, -9999, -1000.1, 0.5} {
		if s.of(ids, []float32{-1, v}) != want {
			t.Errorf("%v has extra bits", v)
		}
		if telling(slices.Repeat([]float32{v}, 2*tellingTokens)) {
			t.Errorf("%v identifies a prompt", v)
		}
	}
	if s.of(ids, []float32{-1, -1000}) == want || !telling(slices.Repeat([]float32{-1000}, tellingTokens)) {
		t.Error("-1000 is a log-probability")
	}
}
