package tokenize_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A chain is a sample with known true prompts. Each prompt is all tokens before it, sometimes with
// drift, and some calls are quarantined. Few ids are used, so that sequences look alike.
func chain(r *rand.Rand) []tokenize.Call {
	ids := func(n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(r.IntN(5))
		}
		return out
	}
	var calls []tokenize.Call
	prompt := ids(1 + r.IntN(12))
	for range 1 + r.IntN(10) {
		c := tokenize.Call{PromptIDs: slices.Clone(prompt), OutputIDs: ids(1 + r.IntN(8)), Source: tokenize.SourceStored, Grade: tokenize.CountVerified, Version: -1}
		for range c.OutputIDs {
			c.Logprobs = append(c.Logprobs, -r.Float32())
		}
		if r.IntN(8) == 0 {
			c.Grade, c.Reason, c.PromptIDs = tokenize.Quarantined, tokenize.ReasonCompacted, nil
		}
		c.After = []tokenize.Role{tokenize.RoleTool, tokenize.RoleUser}[r.IntN(2)]
		calls = append(calls, c)

		prompt = slices.Concat(prompt, c.OutputIDs)
		switch r.IntN(8) { // how the server changes the history
		case 0: // one id changes
			prompt[r.IntN(len(prompt))] = int32(r.IntN(5))
		case 1: // some ids are missing
			at := r.IntN(len(prompt))
			prompt = slices.Delete(prompt, at, at+1+r.IntN(len(prompt)-at))
		case 2: // some ids are inserted
			prompt = slices.Insert(prompt, r.IntN(len(prompt)+1), ids(1+r.IntN(3))...)
		case 3: // sampled again at the same position
			prompt = prompt[:len(prompt)-len(c.OutputIDs)]
			calls[len(calls)-1].After = tokenize.RoleUser
			if len(prompt) > 0 {
				continue
			}
		}
		prompt = append(prompt, ids(1+r.IntN(5))...)
	}
	return calls
}

// checkChain verifies that every sampled token is in exactly one row, with its log-probability and
// after exactly the prompt of its call. A token whose log-probability is NaN has mask 0. Tokens of
// quarantined calls must be in no row.
func checkChain(calls []tokenize.Call, rows []tokenize.Row, lost []int32, vocab int) error {
	times := make([]int, len(calls))
	for i := range rows {
		row := &rows[i]
		if err := row.Check(vocab); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		k := int(row.FirstCall)
		for s, role := range row.TurnRoles {
			lo, hi := row.TurnOffsets[s], row.TurnOffsets[s+1]
			if tokenize.Role(role) != tokenize.RoleAssistant {
				if slices.Contains(row.LossMask[lo:hi], 1) {
					return fmt.Errorf("row %d trains context", i)
				}
				continue
			}
			if k >= len(calls) {
				return fmt.Errorf("row %d has more outputs than there are calls", i)
			}
			c := &calls[k]
			if !slices.Equal(row.InputIDs[:lo], c.PromptIDs) {
				return fmt.Errorf("row %d: call %d comes after %v, but the model saw %v", i, k, row.InputIDs[:lo], c.PromptIDs)
			}
			if !slices.Equal(row.InputIDs[lo:hi], c.OutputIDs) || len(c.Logprobs) != len(c.OutputIDs) {
				return fmt.Errorf("row %d: output of call %d is %v, want all of %v", i, k, row.InputIDs[lo:hi], c.OutputIDs)
			}
			for j, want := range c.Logprobs {
				mask, v := row.LossMask[int(lo)+j], row.Logprobs[int(lo)+j]
				if want != want && (mask != 0 || v != 0) || want == want && (mask != 1 || math.Float32bits(v) != math.Float32bits(want)) {
					return fmt.Errorf("row %d: call %d token %d has mask %d and log-probability %v, want %v", i, k, j, mask, v, want)
				}
			}
			times[k]++
			k++
		}
		if k != int(row.LastCall) {
			return fmt.Errorf("row %d claims calls up to %d, but has them up to %d", i, row.LastCall, k)
		}
	}
	for k := range calls {
		want := 1
		if calls[k].Grade == tokenize.Quarantined {
			want = 0
		}
		if times[k] != want || slices.Contains(lost, int32(k)) != (want == 0) {
			return fmt.Errorf("call %d is in %d rows, lost %v; want it in %d", k, times[k], lost, want)
		}
	}
	return nil
}

// TestChains checks random chains with checkChain.
func TestChains(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	a := tokenize.NewAligner(tokenize.AlignConfig{})
	forks, continued, lost := 0, 0, 0
	for n := range 20_000 {
		calls := chain(rand.New(rand.NewPCG(seed, uint64(n))))
		rows, sum, err := a.Align(calls)
		if err == nil {
			err = checkChain(calls, rows, sum.LostCalls, 0)
		}
		if err != nil {
			t.Fatalf("seed %d chain %d: %v", seed, n, err)
		}
		forks += sum.Forks
		lost += len(sum.LostCalls)
		for i := range rows {
			continued += int(rows[i].LastCall-rows[i].FirstCall) - 1
		}
	}
	if forks == 0 || continued == 0 || lost == 0 {
		t.Errorf("%d forks, %d continued, %d lost: nothing was tested", forks, continued, lost)
	}
	t.Logf("seed %d: %d calls forked, %d continued, %d lost", seed, forks, continued, lost)
}
