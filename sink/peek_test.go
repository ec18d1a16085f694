package sink_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// TestRowsOneByOne tests that Row and Heads return the rows of Rows, Heads with fewer columns.
func TestRowsOneByOne(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			sinktest.Write(t, dir, sink.Config{Format: format, RowGroupTokens: 3000, MaxShardBytes: 400_000}, sinktest.Edge())
			log, err := sink.ReadLog(dir)
			if err != nil {
				t.Fatal(err)
			}
			n := int64(0)
			for s := range log.Shards(sink.KindData) {
				var want []*sink.StoredRow
				for r, err := range log.Rows(s) {
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, r)
				}
				for i, w := range want {
					at, row, ok := log.At(sink.KindData, n)
					if !ok || at.Path != s.Path || row != int64(i) {
						t.Errorf("row %d is row %d of %s, want %d of %s", n, row, at.Path, i, s.Path)
					}
					got, err := log.Row(s, int64(i))
					if err != nil {
						t.Fatal(err)
					}
					differ(t, i, got, w)
					n++
				}
				i := 0
				for got, err := range log.Heads(s) {
					if err != nil {
						t.Fatal(err)
					}
					w := want[i]
					total, trained := got.TokenCount()
					mask := 0
					for _, m := range w.LossMask {
						mask += int(m)
					}
					if total != len(w.InputIDs) || trained != mask {
						t.Errorf("row %d: %d tokens, %d trained, want %d and %d", i, total, trained, len(w.InputIDs), mask)
					}
					differ(t, i, got, w, leftOut[sink.StoredRow]("SampleKey", "TaskID", "GroupID", "SampleIndex", "SegmentIndex", "SegmentCount", "TurnOffsets",
						"TurnRoles", "Reward", "Status", "Verification", "PromptSource", "Divergence", "Flags", "Unscored")...)
					i++
				}
				if i != len(want) {
					t.Errorf("%d heads, want %d", i, len(want))
				}
				if _, err := log.Row(s, s.Rows); err == nil {
					t.Error("the row after the last was read")
				}
			}
			if _, _, ok := log.At(sink.KindData, n); ok || n < 50 {
				t.Errorf("there is a row %d", n)
			}
			for s := range log.Shards(sink.KindFailures) {
				i := 0
				for w, err := range log.Failures(s) {
					if err != nil {
						t.Fatal(err)
					}
					got, err := log.Failure(s, int64(i))
					if err != nil {
						t.Fatal(err)
					}
					differ(t, i, got, w)
					i++
				}
			}
		})
	}
}

// leftOut lists the fields of T except but.
func leftOut[T any](but ...string) (names []string) {
	for f := range reflect.TypeFor[T]().Fields() {
		keep := false
		for _, name := range but {
			keep = keep || name == f.Name
		}
		if !keep {
			names = append(names, f.Name)
		}
	}
	return names
}

// TestRowOfDamage tests that the digest refuses a damaged shard before the library reads it.
func TestRowOfDamage(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		dir := t.TempDir()
		sinktest.Write(t, dir, sink.Config{Format: format}, samples(5))
		log, err := sink.ReadLog(dir)
		if err != nil {
			t.Fatal(err)
		}
		s, row, _ := log.At(sink.KindData, 2)
		path := filepath.Join(dir, filepath.FromSlash(s.Path))
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		body[len(body)/2] ^= 4
		if err := os.WriteFile(path, body, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err = log.Row(s, row)
		if !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), s.Path) {
			t.Errorf("Row() = %v, want a *CorruptError of %s", err, s.Path)
		}
	}
}
