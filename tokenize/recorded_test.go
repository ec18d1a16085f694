package tokenize_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

// recordedCalls decodes the replies of one recording and sets each call's prompt to the one that
// the engine saw. It also returns the server's sums.
func recordedCalls(t *testing.T, rec recording) ([]tokenize.Call, tokenize.Counts) {
	t.Helper()
	var turns []tokenize.Turn
	var prompts [][]int32
	var counts tokenize.Counts
	for _, x := range rec.Exchanges {
		if x.Response.Status != 200 {
			continue
		}
		r := mustDecode(t, x.Response.Body)
		if !r.HasTurns {
			continue
		}
		turns = append(turns, r.Turns...)
		for _, m := range x.ModelCalls {
			if m.Path == "/generate" && m.Status == 200 && len(m.Response.OutputIDs) > 0 {
				prompts = append(prompts, m.InputIDs)
				counts.PromptTokens += int64(len(m.InputIDs))
				counts.CompletionTokens += int64(len(m.Response.OutputIDs))
				counts.Steps++
			}
		}
	}
	if len(turns) == 0 {
		return nil, counts
	}
	calls, err := tokenize.CallsFromTurns(nil, turns)
	if err != nil {
		t.Fatalf("%s: %v", rec.name, err)
	}
	for k := range calls {
		if calls[k].Grade != tokenize.Quarantined || calls[k].Reason != tokenize.ReasonNoPrompt {
			t.Errorf("%s call %d: a claim about a prompt that the reply lacks: %s %s", rec.name, k, calls[k].Grade, calls[k].Reason)
		}
	}
	if len(calls) != len(prompts) {
		t.Fatalf("%s: %d calls, %d prompts", rec.name, len(calls), len(prompts))
	}
	for k := range calls {
		calls[k].PromptIDs, calls[k].Source, calls[k].Grade, calls[k].Reason = prompts[k], tokenize.SourceTap, tokenize.Exact, tokenize.ReasonNone
	}
	return calls, counts
}

// TestAlignRecorded checks that each recorded token is trained exactly once, with its own
// log-probability and after exactly the ids that the engine saw before it. DriftReject rejects every
// recording that forks.
func TestAlignRecorded(t *testing.T) {
	t.Parallel()
	pairs, continued := 0, 0
	for _, rec := range recordings(t) {
		calls, counts := recordedCalls(t, rec)
		if len(calls) == 0 {
			continue
		}
		if err := tokenize.CheckCounts(calls, counts); err != nil {
			t.Errorf("%s: %v", rec.name, err)
		}
		rows, sum, err := tokenize.NewAligner(tokenize.AlignConfig{VocabSize: 151_936}).Align(calls)
		if err != nil {
			t.Errorf("%s: %v", rec.name, err)
			continue
		}
		if sum.Sampled != int(counts.CompletionTokens) || sum.Trained+sum.Unscored != sum.Sampled {
			t.Errorf("%s: %+v, want all of %d tokens", rec.name, sum, counts.CompletionTokens)
		}
		if err := checkChain(calls, rows, sum.LostCalls, 151_936); err != nil {
			t.Errorf("%s: %v", rec.name, err)
		}
		none, _, err := tokenize.NewAligner(tokenize.AlignConfig{Drift: tokenize.DriftReject}).Align(calls)
		e, rejected := errors.AsType[*tokenize.AlignError](err)
		if rejected != (sum.Forks > 0) || rejected && (e.Reason != tokenize.ReasonDrift || !errors.Is(err, tokenize.ErrPrefix) || len(none) != 0) {
			t.Errorf("%s: %d forks, but reject returned %v with %d rows", rec.name, sum.Forks, err, len(none))
		}
		for k := 1; k < len(calls); k++ {
			pairs++
			joined := append(slices.Clone(calls[k-1].PromptIDs), calls[k-1].OutputIDs...)
			isPrefix := len(calls[k].PromptIDs) > len(joined) && slices.Equal(calls[k].PromptIDs[:len(joined)], joined)
			if isPrefix {
				continued++
			}
			fork := slices.ContainsFunc(rows, func(r tokenize.Row) bool { return int(r.FirstCall) == k })
			if fork == isPrefix {
				t.Errorf("%s call %d: fork is %v, prompt continues is %v", rec.name, k, fork, isPrefix)
			}
		}
	}
	if pairs != 48 || continued != 24 {
		t.Errorf("%d of %d neighbouring calls continue; the recordings have 24 of 48", continued, pairs)
	}
}

// TestRealignRecorded checks how many recorded tokens DriftRealign trains. DriftFork trains all.
func TestRealignRecorded(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 9, 32} {
		var total tokenize.Alignment
		for _, rec := range recordings(t) {
			calls, _ := recordedCalls(t, rec)
			rows, sum, err := tokenize.NewAligner(tokenize.AlignConfig{Drift: tokenize.DriftRealign, RealignMax: limit}).Align(calls)
			if err != nil {
				t.Fatal(err)
			}
			for i := range rows {
				if err := rows[i].Check(0); err != nil {
					t.Errorf("%s row %d: %v", rec.name, i, err)
				}
			}
			total.Sampled += sum.Sampled
			total.Trained += sum.Trained
			total.Unscored += sum.Unscored
			total.Trimmed += sum.Trimmed
			total.Realigned += sum.Realigned
			total.Forks += sum.Forks
		}
		if total.Sampled != total.Trained+total.Unscored+total.Trimmed {
			t.Errorf("N=%d: %+v does not add up", limit, total)
		}
		if limit < 10 && total.Realigned != 0 {
			t.Errorf("N=%d: %d breaks shorter than 10 tokens, the recordings have none", limit, total.Realigned)
		}
		if limit == 32 && total.Realigned == 0 {
			t.Error("N=32 repairs nothing: the test has lost its teeth")
		}
		t.Logf("N=%d: %d of %d tokens trained, %d trimmed, %d forks", limit, total.Trained, total.Sampled, total.Trimmed, total.Forks)
	}
}
