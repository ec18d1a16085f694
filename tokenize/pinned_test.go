package tokenize_test

import (
	"math"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

// Pinned semantics.
//
// These tests state promises to users who have trained on rows of this package. If one of them
// fails after a change, the change is wrong; do not fix the test. A change of its behavior needs a
// new schema version and a line in the changelog.

func TestPinned(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		promise string
		calls   []tokenize.Call
		want    string
	}{
		{ // the server renders the last output without its stop token, 99
			"A sampled token is trained under the context that the model saw, or not at all.",
			[]tokenize.Call{exactCall([]int32{1}, []int32{10, 99}), exactCall([]int32{1, 10, 2}, []int32{20})},
			"1 [10 99] | 1 10 2 [20]",
		},
		{
			"The mask follows provenance, never role: an assistant message in a prompt is context.",
			[]tokenize.Call{exactCall([]int32{1}, []int32{10}), exactCall([]int32{5, 10, 6}, []int32{20})},
			"1 [10] | 5 10 6 [20]",
		},
		{
			"Ids are exactly the sampled ids, including the stop token and special tokens.",
			[]tokenize.Call{exactCall([]int32{151644}, []int32{151667, 198, 151645})},
			"151644 [151667 198 151645]",
		},
	} {
		if got := brackets(mustAlign(t, tokenize.AlignConfig{}, tt.calls...)...); got != tt.want {
			t.Errorf("%s Got %s, want %s", tt.promise, got, tt.want)
		}
	}
}

// Fork is the default and trims no token.
func TestPinnedForkIsTheDefault(t *testing.T) {
	t.Parallel()
	var cfg tokenize.AlignConfig
	if cfg.Drift != tokenize.DriftFork {
		t.Error("the zero value does not fork")
	}
	calls := []tokenize.Call{exactCall([]int32{1}, []int32{10, 99}), exactCall([]int32{1, 10, 2}, []int32{20})}
	_, sum, err := tokenize.NewAligner(cfg).Align(calls)
	if err != nil || sum.Trimmed != 0 || sum.Trained != 3 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// A missing log-probability gives mask 0 and exactly 0.0, never probability one.
func TestPinnedNothingInvented(t *testing.T) {
	t.Parallel()
	c := exactCall([]int32{1}, []int32{10, 11})
	c.Logprobs[0] = float32(math.NaN())
	r := mustAlign(t, tokenize.AlignConfig{}, c)[0]
	if r.LossMask[1] != 0 || math.Float32bits(r.Logprobs[1]) != 0 || r.Unscored != 1 || r.LossMask[2] != 1 {
		t.Errorf("mask %v logprobs %v unscored %d", r.LossMask, r.Logprobs, r.Unscored)
	}
}

// A log-probability of exactly 0 is valid.
func TestPinnedZeroIsAValue(t *testing.T) {
	t.Parallel()
	c := exactCall([]int32{1}, []int32{10})
	c.Logprobs[0] = 0
	r := mustAlign(t, tokenize.AlignConfig{}, c)[0]
	if r.LossMask[1] != 1 || r.Unscored != 0 {
		t.Errorf("mask %v", r.LossMask)
	}
}

// A row ends with its last sampled token.
func TestPinnedEnd(t *testing.T) {
	t.Parallel()
	reply := mustDecode(t, []byte(`{"turns":[
		{"role":"assistant","input_ids":[1],"output_ids":[10],"output_token_logprobs":[[-0.5,10,null]]},
		{"role":"tool","content":"nobody answered this"}]}`))
	calls, err := tokenize.CallsFromTurns(nil, reply.Turns)
	if err != nil {
		t.Fatal(err)
	}
	if got := brackets(mustAlign(t, tokenize.AlignConfig{}, calls...)...); got != "1 [10]" {
		t.Error(got)
	}
}

// A call without a prompt makes no row.
func TestPinnedNoPromptNoRow(t *testing.T) {
	t.Parallel()
	calls, err := tokenize.CallsFromTurns(nil, []tokenize.Turn{assistantTurn([]int32{1}, []float32{-1})})
	if err != nil || calls[0].Grade != tokenize.Quarantined || calls[0].Reason != tokenize.ReasonNoPrompt {
		t.Fatalf("%+v, %v", calls, err)
	}
	if rows := mustAlign(t, tokenize.AlignConfig{}, calls...); len(rows) != 0 {
		t.Errorf("%d rows", len(rows))
	}
}

func exactCall(prompt, output []int32) tokenize.Call {
	c := tokenize.Call{PromptIDs: prompt, OutputIDs: output, After: tokenize.RoleTool, Source: tokenize.SourceTurns, Version: -1}
	for range output {
		c.Logprobs = append(c.Logprobs, -0.5)
	}
	return c
}

func mustAlign(t *testing.T, cfg tokenize.AlignConfig, calls ...tokenize.Call) []tokenize.Row {
	t.Helper()
	rows, _, err := tokenize.NewAligner(cfg).Align(calls)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if err := rows[i].Check(0); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}
