package enginecheck_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
)

// A run is the same as itself, in any order, and as a run that claims more. Single differences are
// found.
func TestSame(t *testing.T) {
	t.Parallel()
	first, _ := world()
	second, _ := world()
	slices.Reverse(second.Rows)
	if s := enginecheck.Same(first, second, nil, nil); s.Calls != 4 || s.Rows != 2 || s.Missing+s.Differing != 0 {
		t.Errorf("in another order:\n%s", s) // the sample with a failure is not compared as a whole
	}
	less, _ := world()
	less.Rows = less.Rows[1:]
	if s := enginecheck.Same(less, second, nil, nil); s.Calls != 2 || s.Missing+s.Differing != 0 {
		t.Errorf("one that claims less:\n%s", s)
	}
	if s := enginecheck.Same(second, less, nil, nil); s.Missing != 2 || s.Differing != 0 {
		t.Errorf("one that claims more:\n%s", s)
	}
	first.Rows[0].InputIDs[0] = 77
	byLength := func(ids []int32) string { return fmt.Sprint(len(ids)) }
	if s := enginecheck.Same(first, second, byLength, nil); s.Calls != 4 || s.Differing != 0 {
		t.Errorf("another id that is not shown:\n%s", s)
	}
	tools := func(ids []int32) string { return fmt.Sprint(ids[0]) } // the first id represents their order
	second.Rows[0].InputIDs[0] = 78
	if s := enginecheck.Same(second, first, byLength, tools); s.Calls != 4 || s.Mixed == 0 || s.Differing != 0 {
		t.Errorf("tools in another order in one row of a sample:\n%s", s)
	}
	for _, tt := range []struct {
		name               string
		plant              func(*enginecheck.Run)
		differing, missing int
	}{
		{"a context", func(r *enginecheck.Run) { r.Rows[0].InputIDs[2] = 99 }, 2, 0}, // of both calls
		{"a sampled id", func(r *enginecheck.Run) { r.Rows[0].InputIDs[3] = 99 }, 2, 1},
		{"a log-probability", func(r *enginecheck.Run) { r.Rows[0].Logprobs[7] = -0.5 }, 0, 1},
		{"a mask", func(r *enginecheck.Run) { r.Rows[2].LossMask[3] = 0 }, 0, 1},
		{"a finish reason", func(r *enginecheck.Run) { r.Rows[0].FinishReasons[0] = "length" }, 1, 0},
		{"no finish reason", func(r *enginecheck.Run) { r.Rows[0].FinishReasons = nil }, 0, 0},
		{"a version", func(r *enginecheck.Run) { r.Rows[0].Versions[6] = 8 }, 1, 0},
		{"a status", func(r *enginecheck.Run) { r.Rows[0].Status = "truncated" }, 1, 0},
		{"a role", func(r *enginecheck.Run) { r.Rows[0].TurnRoles[2] = 3 }, 1, 0},
		{"a claim", func(r *enginecheck.Run) { r.Rows[0].Verification = "unverified" }, 1, 2},
		{"a row twice", func(r *enginecheck.Run) { r.Rows = append(r.Rows, r.Rows[0]) }, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, _ := world()
			b, _ := world()
			tt.plant(b)
			s := enginecheck.Same(a, b, nil, nil)
			if s.Differing != tt.differing || s.Missing != tt.missing {
				t.Errorf("%d differences and %d missing, want %d and %d\n%s", s.Differing, s.Missing, tt.differing, tt.missing, s)
			}
		})
	}
}
