package tokenize_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

// realignedCalls give prompt(1 2) [10 11] tool(50 3) [20] tool(60) [30]. The end 12 13 of the first
// output and the end 21 of the second are replaced.
func realignedCalls() []tokenize.Call {
	call := func(prompt, output []int32) tokenize.Call {
		return tokenize.Call{PromptIDs: prompt, OutputIDs: output, Logprobs: make([]float32, len(output)), Source: tokenize.SourceTurns, Version: -1, After: tokenize.RoleTool}
	}
	return []tokenize.Call{
		call([]int32{1, 2}, []int32{10, 11, 12, 13}),
		call([]int32{1, 2, 10, 11, 50, 3}, []int32{20, 21}),
		call([]int32{1, 2, 10, 11, 50, 3, 20, 60}, []int32{30}),
	}
}

func realignedRow(t *testing.T) *tokenize.Row {
	t.Helper()
	rows, _, err := tokenize.NewAligner(tokenize.AlignConfig{Drift: tokenize.DriftRealign, RealignMax: 2}).Align(realignedCalls())
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	return &rows[0]
}

// TestRealigned checks that Row.Realigned shares no memory with calls.
func TestRealigned(t *testing.T) {
	t.Parallel()
	calls := realignedCalls()
	rows, _, err := tokenize.NewAligner(tokenize.AlignConfig{Drift: tokenize.DriftRealign, RealignMax: 2}).Align(calls)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		clear(c.PromptIDs)
		clear(c.OutputIDs)
	}
	r := &rows[0]
	want := `{"realigned":[{"call":1,"offset":4,"kind":"last_output","row":[12,13],"prompt":[50,3]},` +
		`{"call":2,"offset":7,"kind":"last_output","row":[21],"prompt":[60]}]}`
	if got := string(r.AppendDivergence(nil)); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	for _, d := range r.Realigned {
		if r.InputIDs[d.Offset] != d.Prompt[0] {
			t.Errorf("the row has %d at %d, the record %d", r.InputIDs[d.Offset], d.Offset, d.Prompt[0])
		}
	}
	if err := r.Check(0); err != nil {
		t.Error(err)
	}
}

// TestRealignedCheck checks that Check detects each broken rule of Realigned.
func TestRealignedCheck(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		corrupt func(*tokenize.Row)
		want    error
	}{
		{"nothing", func(*tokenize.Row) {}, nil},
		{"no record of it", func(r *tokenize.Row) { r.Realigned = nil }, nil},
		{"no flag", func(r *tokenize.Row) { r.Flags, r.Trimmed = 0, 0 }, tokenize.ErrInvariant},
		{"offset beyond the row", func(r *tokenize.Row) { r.Realigned[1].Offset = int32(len(r.InputIDs)) }, tokenize.ErrInvariant},
		{"negative offset", func(r *tokenize.Row) { r.Realigned[0].Offset = -1 }, tokenize.ErrInvariant},
		{"offset at a trained token", func(r *tokenize.Row) { r.Realigned[0].Offset-- }, tokenize.ErrInvariant},
		{"offset at other context", func(r *tokenize.Row) { r.Realigned[0].Offset++ }, tokenize.ErrInvariant},
		{"offsets fall", func(r *tokenize.Row) { slices.Reverse(r.Realigned) }, tokenize.ErrInvariant},
		{"calls fall", func(r *tokenize.Row) { r.Realigned[1].Call = 1 }, tokenize.ErrInvariant},
		{"as many as calls", func(r *tokenize.Row) {
			r.LastCall--
			r.FinishReasons, r.StepIDs = r.FinishReasons[:2], r.StepIDs[:2]
		}, tokenize.ErrInvariant},
		{"kind", func(r *tokenize.Row) { r.Realigned[0].Kind = tokenize.DivergedInPrompt }, tokenize.ErrInvariant},
		{"sides agree", func(r *tokenize.Row) { r.Realigned[0].Row[0] = 50 }, tokenize.ErrInvariant},
		{"nothing sampled", func(r *tokenize.Row) { r.Realigned[0].Row = nil }, tokenize.ErrInvariant},
		{"nothing in its place", func(r *tokenize.Row) { r.Realigned[0].Prompt = nil }, tokenize.ErrInvariant},
		{"more than the window", func(r *tokenize.Row) {
			r.Realigned[0].Row = make([]int32, tokenize.DivergenceWindow+1)
		}, tokenize.ErrInvariant},
	} {
		r := realignedRow(t)
		tt.corrupt(r)
		if err := r.Check(0); !errors.Is(err, tt.want) {
			t.Errorf("%s: Check() = %v, want %v", tt.name, err, tt.want)
		}
	}
}
