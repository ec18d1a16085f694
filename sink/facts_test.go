package sink_test

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// TestReaders tests that Row and Facts return the rows of Rows, in order, and that Failure and FailureFacts
// return the rows of Failures. Facts and FailureFacts leave columns empty.
func TestReaders(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			sinktest.Write(t, dir, sink.Config{Format: format, RowGroupTokens: 1000, MaxShardBytes: 400_000}, sinktest.Edge())
			log := readLog(t, dir)
			n := int64(0)
			for s := range log.Shards(sink.KindData) {
				want := slices.Collect(each(t, log.Rows(s)))
				for i, w := range want {
					at, row, ok := log.At(sink.KindData, n)
					if !ok || at.Path != s.Path || row != int64(i) {
						t.Errorf("row %d is row %d of %s, want %d of %s", n, row, at.Path, i, s.Path)
					}
					got, err := log.Row(s, int64(i))
					must(t, err)
					differ(t, fmt.Sprint("row ", i), got, w)
					n++
				}
				if _, err := log.Row(s, s.Rows); err == nil {
					t.Error("the row after the last was read")
				}
				sameRows(t, log.Facts(s), want, func(got, w *sink.StoredRow) bool {
					total, trained := got.TokenCount()
					mask := 0
					for _, m := range w.LossMask {
						mask += int(m)
					}
					return total == len(w.InputIDs) && trained == mask && int(got.TurnOffsets[len(got.TurnOffsets)-1]) == total
				}, "InputIDs", "LossMask", "Logprobs", "Versions", "FinishReasons", "RolloutID", "RewardDetails", "Messages", "Metadata", "RunIDs", "StepIDs", "Model", "Temperature", "TopP", "TopK", "MaxNewTokens")
				read := 0
				for range each(t, log.Facts(s)) {
					if read++; read == 2 {
						break // stop early
					}
				}
				if read != min(2, len(want)) {
					t.Errorf("%d rows, want 2", read)
				}
			}
			for _, err := range log.Rows(sink.Shard{Kind: sink.KindFailures, Path: "failures/none"}) {
				if err == nil || !strings.Contains(err.Error(), "shard of kind failures, want data") {
					t.Errorf("failures as rows: %v", err)
				}
			}
			if _, _, ok := log.At(sink.KindData, n); ok || n < 50 {
				t.Errorf("there is a row %d", n)
			}
			failures := 0
			for s := range log.Shards(sink.KindFailures) {
				want := slices.Collect(each(t, log.Failures(s)))
				for i, w := range want {
					got, err := log.Failure(s, int64(i))
					must(t, err)
					differ(t, fmt.Sprint("row ", i), got, w)
				}
				sameRows(t, log.FailureFacts(s), want, nil, "Logprobs", "Text", "RunIDs", "Model", "Messages", "Metadata", "RolloutID")
				failures += len(want)
			}
			if failures < 2 {
				t.Errorf("%d failures were compared", failures)
			}
		})
	}
}

// sameRows checks that rows yields want without the columns leftOut, and that ok accepts each row.
func sameRows[T any](t *testing.T, rows iter.Seq2[*T, error], want []*T, ok func(got, want *T) bool, leftOut ...string) {
	t.Helper()
	i := 0
	for got := range each(t, rows) {
		if differ(t, fmt.Sprint("row ", i), got, want[i], leftOut...); ok != nil && !ok(got, want[i]) {
			t.Errorf("row %d: other tokens: %+v", i, got)
		}
		i++
	}
	if i != len(want) {
		t.Errorf("%d rows, want %d", i, len(want))
	}
}
