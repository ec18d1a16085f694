package sink_test

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/tokenize"
)

// A countingStore counts the bytes that are read from its objects.
type countingStore struct {
	store.Store
	read int64
}

type countingObject struct {
	store.Object
	of *countingStore
}

func (s *countingStore) Open(name string) (store.Object, error) {
	o, err := s.Store.Open(name)
	return countingObject{o, s}, err
}

func (o countingObject) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(p, off)
	o.of.read += int64(n)
	return n, err
}

// TestDigestOnce tests that a Log checks the digest of a local shard before the first row, and not before every
// row. A shard whose size changes afterwards is damaged.
func TestDigestOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := sinktest.NewBuilder(1)
	var all []*tokenize.Sample
	for range 200 {
		all = append(all, b.Sample(b.Row(100, 100)))
	}
	sinktest.Write(t, dir, sink.Config{RowGroupTokens: 1000}, all)
	log := readLog(t, dir)
	shard := log.Commits[0].Shards[0]
	counted := &countingStore{Store: store.Folder(sink.OS(), dir)}
	cost := func(read func(*sink.Log) error) int64 {
		t.Helper()
		counted.read = 0
		must(t, read(log.In(counted)))
		return counted.read
	}
	row := func(l *sink.Log) error { _, err := l.Row(shard, 7); return err }
	if n := cost(row); n < shard.Bytes {
		t.Errorf("the first row took %d bytes, fewer than the %d of the shard", n, shard.Bytes)
	}
	if n := cost(row); n > shard.Bytes/2 {
		t.Errorf("the second row took %d bytes of %d", n, shard.Bytes)
	}
	facts := func(l *sink.Log) error {
		for _, err := range l.Facts(shard) {
			return err
		}
		return nil
	}
	if n := cost(facts); n < shard.Bytes {
		t.Errorf("the facts took %d bytes, fewer than the %d of the shard", n, shard.Bytes)
	}
	f, err := os.OpenFile(filepath.Join(dir, shard.Path), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString("x")
	must(t, errors.Join(err, f.Close()))
	if _, err := log.Row(shard, 7); !errors.Is(err, sink.ErrCorrupt) {
		t.Errorf("the shard is longer now, but the error is %v", err)
	}
}

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
