package tokenize_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// TestSeveralChains checks that the rows of several chains are the rows of each chain alone. Calls
// that are left out come last. They belong to any chain, and do not change the rows.
func TestSeveralChains(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	a := tokenize.NewAligner(tokenize.AlignConfig{})
	several, same := 0, 0 // samples with rows of several chains; chains that begin like the chain before
	for n := range 5000 {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		var calls, left []tokenize.Call
		var want []tokenize.Row
		sum := tokenize.Alignment{}
		for x := range 1 + r.IntN(4) {
			calls1 := chain(r)
			if len(calls) > 0 && calls[len(calls)-1].PromptIDs != nil && r.IntN(2) == 0 {
				// The prompt continues the last row of the chain before.
				last := &calls[len(calls)-1]
				for k := range calls1 {
					if calls1[k].PromptIDs != nil {
						calls1[k].PromptIDs = slices.Concat(last.PromptIDs, last.OutputIDs, calls1[k].PromptIDs)
					}
				}
				same++
			}
			for k := range calls1 {
				calls1[k].Chain, calls1[k].ChainKind = int32(x), tokenize.ChainKind(min(x, 2))
				if x == 1 {
					calls1[k].Parent.Step = 7
				}
			}
			calls1 = slices.DeleteFunc(calls1, func(c tokenize.Call) bool {
				lost := c.Grade == tokenize.Quarantined
				if lost {
					left = append(left, c)
				}
				return lost
			})
			rows, s, err := a.Align(calls1)
			if err != nil {
				t.Fatalf("seed %d sample %d: %v", seed, n, err)
			}
			for i := range rows {
				rows[i].FirstCall += int32(len(calls))
				rows[i].LastCall += int32(len(calls))
				if rows[i].Divergence != nil {
					rows[i].Divergence.Call += int32(len(calls))
				}
			}
			want, calls = append(want, rows...), append(calls, calls1...)
			sum.Sampled += s.Sampled
			sum.Trained += s.Trained
			sum.Forks += s.Forks
		}
		for i := range want {
			want[i].SegmentIndex, want[i].SegmentCount = int32(i), int32(len(want))
		}
		for _, c := range left {
			sum.Sampled += len(c.OutputIDs)
			sum.Lost += len(c.OutputIDs)
		}
		all := append(calls, left...)
		rows, s, err := a.Align(all)
		if err == nil {
			err = checkChain(all, rows, s.LostCalls, 0)
		}
		if err != nil {
			t.Fatalf("seed %d sample %d: %v", seed, n, err)
		}
		if s.Sampled != sum.Sampled || s.Trained != sum.Trained || s.Forks != sum.Forks || s.Lost != sum.Lost {
			t.Fatalf("seed %d sample %d: %+v, want %+v", seed, n, s, sum)
		}
		if len(rows) != len(want) {
			t.Fatalf("seed %d sample %d: %d rows, want %d", seed, n, len(rows), len(want))
		}
		for i := range rows {
			if !reflect.DeepEqual(rows[i], want[i]) {
				t.Fatalf("seed %d sample %d row %d:\n got %+v\nwant %+v", seed, n, i, rows[i], want[i])
			}
		}
		if len(rows) > 0 && rows[0].Chain != rows[len(rows)-1].Chain {
			several++
		}
	}
	if several == 0 || same == 0 {
		t.Errorf("%d samples with rows of several chains, %d chains that begin like another: nothing was tested", several, same)
	}
}
