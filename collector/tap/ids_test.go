package tap_test

import (
	"math"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	for width := range 32 {
		var all []int32
		for i := range int32(70) {
			all = append(all, i*0x3779b979&(1<<width-1))
		}
		same(t, append(all, 1<<width-1))
	}
	for _, all := range [][]int32{{0}, {0, 0, 0}, {5}, {math.MaxInt32, 0, -1, 1, math.MinInt32, math.MaxInt32}} {
		same(t, all)
	}
	for _, empty := range []tap.IDs{{}, tap.PackIDs(), tap.PackIDs(nil, []int32{})} {
		if empty.Len() != 0 || empty.Bytes() != 0 || empty.AppendTo(nil, 0) != nil {
			t.Errorf("%+v is not empty", empty)
		}
	}
	few := make([]int32, 1000)
	few[999] = 151_935
	if got := tap.PackIDs(few); got.Bytes() != 18*1000/8+8 {
		t.Errorf("they take %d bytes", got.Bytes())
	}
}

// same checks a packed list for every split into two.
func same(t *testing.T, all []int32) {
	t.Helper()
	for n := range all {
		packed := tap.PackIDs(all[:n], nil, all[n:])
		if got := packed.AppendTo([]int32{7}, len(all)); packed.Len() != len(all) || !slices.Equal(got[1:], all) {
			t.Errorf("PackIDs = %d", got)
		}
		if got := packed.AppendTo(nil, n); !slices.Equal(got, all[:n]) {
			t.Errorf("the first %d are %d", n, got)
		}
		rest := packed
		for _, want := range all {
			if got := rest.Next(); got != want {
				t.Errorf("Next = %d, want %d", got, want)
			}
		}
		if rest.Len() != 0 || packed.Len() != len(all) {
			t.Errorf("%d ids are left of a copy, %d of the list", rest.Len(), packed.Len())
		}
	}
}
