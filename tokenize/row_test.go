package tokenize_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

// goodRow is prompt(1 2) [10 ~11] tool(3) [20] with versions.
func goodRow() *tokenize.Row {
	return rowOf([]float32{-0.5, float32(math.NaN())}, []float32{0})
}

func rowOf(first, second []float32) *tokenize.Row {
	r := &tokenize.Row{Source: tokenize.SourceTap, SegmentCount: 1, LastCall: 2, FinishReasons: []string{"stop", ""}, StepIDs: []string{"", ""}}
	r.AppendContext(tokenize.RolePrompt, []int32{1, 2})
	r.AppendSampled([]int32{10, 11}, first, 4)
	r.AppendContext(tokenize.RoleTool, []int32{3})
	r.AppendSampled([]int32{20}, second, -1)
	return r
}

// TestRowAppend checks rows of outputs with all log-probabilities, with one too few, which is unscored,
// and with one too many, which is ignored.
func TestRowAppend(t *testing.T) {
	t.Parallel()
	for _, r := range []*tokenize.Row{goodRow(), rowOf([]float32{-0.5}, []float32{0, -7})} {
		if err := r.Check(100); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.InputIDs, []int32{1, 2, 10, 11, 3, 20}) ||
			!slices.Equal(r.LossMask, []int8{0, 0, 1, 0, 0, 1}) ||
			!slices.Equal(r.Logprobs, []float32{0, 0, -0.5, 0, 0, 0}) ||
			!slices.Equal(r.Versions, []int32{-1, -1, 4, 4, -1, -1}) ||
			!slices.Equal(r.TurnOffsets, []int32{0, 2, 4, 5, 6}) ||
			!slices.Equal(r.TurnRoles, []int8{0, 1, 2, 1}) ||
			r.PromptLength != 2 || r.Unscored != 1 {
			t.Fatalf("%+v", r)
		}
		r.AppendContext(tokenize.RoleUser, nil)
		r.AppendSampled(nil, nil, 9)
		if len(r.TurnRoles) != 4 {
			t.Error("appending nothing makes a span")
		}
	}
}

// TestRowCheck checks that Check detects each broken invariant.
func TestRowCheck(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	tests := []struct {
		name    string
		corrupt func(*tokenize.Row)
		want    error
	}{
		{"mask too short", func(r *tokenize.Row) { r.LossMask = r.LossMask[:5] }, tokenize.ErrLength},
		{"logprobs too short", func(r *tokenize.Row) { r.Logprobs = r.Logprobs[:5] }, tokenize.ErrLength},
		{"versions too short", func(r *tokenize.Row) { r.Versions = r.Versions[:5] }, tokenize.ErrLength},
		{"no offsets", func(r *tokenize.Row) { r.TurnOffsets = nil }, tokenize.ErrLength},
		{"a role too many", func(r *tokenize.Row) { r.TurnRoles = append(r.TurnRoles, 1) }, tokenize.ErrLength},
		{"offsets begin late", func(r *tokenize.Row) { r.TurnOffsets[0] = 1 }, tokenize.ErrInvariant},
		{"offsets end early", func(r *tokenize.Row) { r.TurnOffsets[4] = 5 }, tokenize.ErrInvariant},
		{"offsets fall", func(r *tokenize.Row) { r.TurnOffsets[2] = 1 }, tokenize.ErrInvariant},
		{"unknown role", func(r *tokenize.Row) { r.TurnRoles[2] = 9 }, tokenize.ErrInvariant},
		{"id outside the vocabulary", func(r *tokenize.Row) { r.InputIDs[4] = 100 }, tokenize.ErrVocab},
		{"log-probability below -1000", func(r *tokenize.Row) { r.Logprobs[2] = -1000.1 }, tokenize.ErrLogprob},
		{"log-probability of a clamp", func(r *tokenize.Row) { r.Logprobs[2] = -math.MaxFloat32 }, tokenize.ErrLogprob},
		{"negative id", func(r *tokenize.Row) { r.InputIDs[4] = -1 }, tokenize.ErrVocab},
		{"trained without a value", func(r *tokenize.Row) { r.Logprobs[2] = nan }, tokenize.ErrLogprob},
		{"trained at minus infinity", func(r *tokenize.Row) { r.Logprobs[2] = float32(math.Inf(-1)) }, tokenize.ErrLogprob},
		{"trained above 0", func(r *tokenize.Row) { r.Logprobs[2] = 1e-3 }, tokenize.ErrLogprob},
		{"a value under mask 0", func(r *tokenize.Row) { r.Logprobs[3] = -1 }, tokenize.ErrInvariant},
		{"minus zero under mask 0", func(r *tokenize.Row) { r.Logprobs[3] = float32(math.Copysign(0, -1)) }, tokenize.ErrInvariant},
		{"mask 2", func(r *tokenize.Row) { r.LossMask[2] = 2 }, tokenize.ErrInvariant},
		{"mask 1 on context", func(r *tokenize.Row) { r.LossMask[4] = 1 }, tokenize.ErrInvariant},
		{"version on context", func(r *tokenize.Row) { r.Versions[4] = 4 }, tokenize.ErrInvariant},
		{"mask lost", func(r *tokenize.Row) { r.LossMask[2], r.Logprobs[2] = 0, 0 }, tokenize.ErrInvariant},
		{"unscored not counted", func(r *tokenize.Row) { r.Unscored = 0 }, tokenize.ErrInvariant},
		{"prompt length", func(r *tokenize.Row) { r.PromptLength = 1 }, tokenize.ErrInvariant},
		{"nothing trained", func(r *tokenize.Row) { clear(r.LossMask); clear(r.Logprobs); r.Unscored = 3 }, tokenize.ErrNoTokens},
		{"segment", func(r *tokenize.Row) { r.SegmentIndex = 1 }, tokenize.ErrInvariant},
		{"no calls", func(r *tokenize.Row) { r.LastCall = 0 }, tokenize.ErrInvariant},
		{"finish reasons", func(r *tokenize.Row) { r.FinishReasons = nil }, tokenize.ErrLength},
		{"grade", func(r *tokenize.Row) { r.Grade = tokenize.Quarantined }, tokenize.ErrInvariant},
		{"version below -1", func(r *tokenize.Row) { r.Versions[2] = -2 }, tokenize.ErrInvariant},
		{"exact from nowhere", func(r *tokenize.Row) { r.Source = tokenize.SourceNone }, tokenize.ErrInvariant},
		{"exact and rebuilt", func(r *tokenize.Row) { r.Source = tokenize.SourceStored }, tokenize.ErrInvariant},
		{"verified and literal", func(r *tokenize.Row) { r.Source, r.Grade = tokenize.SourceLiteral, tokenize.CountVerified }, tokenize.ErrInvariant},
		{"unknown source", func(r *tokenize.Row) { r.Source = tokenize.SourceLiteral + 1 }, tokenize.ErrInvariant},
		{"trimmed without the flag", func(r *tokenize.Row) { r.Trimmed = 1 }, tokenize.ErrInvariant},
		{"cut without truncated", func(r *tokenize.Row) { r.Flags = tokenize.FlagCut }, tokenize.ErrInvariant},
		{"length without truncated", func(r *tokenize.Row) { r.Flags = tokenize.FlagLength }, tokenize.ErrInvariant},
		{"length of another end", func(r *tokenize.Row) {
			r.Flags, r.Truncated, r.FinishReasons = tokenize.FlagLength, true, []string{"length", "stop"}
		}, tokenize.ErrInvariant},
		{"negative chain", func(r *tokenize.Row) { r.Chain, r.ChainKind = -1, tokenize.ChainSubagent }, tokenize.ErrInvariant},
		{"chain 0 of another kind", func(r *tokenize.Row) { r.ChainKind = tokenize.ChainSubagent }, tokenize.ErrInvariant},
		{"unknown kind of chain", func(r *tokenize.Row) { r.Chain, r.ChainKind = 1, tokenize.ChainAuxiliary+1 }, tokenize.ErrInvariant},
		{"parent of the main chain", func(r *tokenize.Row) { r.Parent.Step = 1 }, tokenize.ErrInvariant},
		{"parent in the same chain", func(r *tokenize.Row) {
			r.Chain, r.ChainKind, r.Parent = 1, tokenize.ChainSubagent, tokenize.Parent{Chain: 1, Step: 1}
		}, tokenize.ErrInvariant},
		{"parent without a step", func(r *tokenize.Row) {
			r.Chain, r.ChainKind, r.Parent = 2, tokenize.ChainSubagent, tokenize.Parent{Chain: 1}
		}, tokenize.ErrInvariant},
		{"unknown flag", func(r *tokenize.Row) { r.Flags = 1 << 15 }, tokenize.ErrInvariant},
	}
	for _, tt := range tests {
		r := goodRow()
		tt.corrupt(r)
		err := r.Check(100)
		e, ok := errors.AsType[*tokenize.AlignError](err)
		if !ok || !errors.Is(err, tt.want) || !strings.HasSuffix(err.Error(), e.Err.Error()) || strings.Contains(err.Error(), " :") {
			t.Errorf("%s: Check() = %v, want %v", tt.name, err, tt.want)
		}
	}
}
