package sink_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// TestFactsAreTheRows tests that Facts returns the rows, in order, without their large columns.
func TestFactsAreTheRows(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			sinktest.Write(t, dir, sink.Config{Format: format, RowGroupTokens: 1000}, sinktest.Edge())
			log, err := sink.ReadLog(dir)
			if err != nil {
				t.Fatal(err)
			}
			rows := 0
			for s := range log.Shards(sink.KindData) {
				var want []*sink.StoredRow
				for r, err := range log.Rows(s) {
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, r)
				}
				i := 0
				for got, err := range log.Facts(s) {
					if err != nil {
						t.Fatal(err)
					}
					w := want[i]
					if n := got.TurnOffsets[len(got.TurnOffsets)-1]; int(n) != len(w.InputIDs) {
						t.Errorf("row %d: last turn offset %d, want %d", i, n, len(w.InputIDs))
					}
					differ(t, i, got, w, "InputIDs", "LossMask", "Logprobs", "Versions", "TurnRoles", "FinishReasons", "RolloutID",
						"RewardDetails", "Divergence", "Messages", "Metadata", "RunIDs", "StepIDs", "Model", "Temperature", "TopP", "TopK", "MaxNewTokens")
					i++
				}
				if i != len(want) {
					t.Errorf("%d rows, want %d", i, len(want))
				}
				rows += i
			}
			failures := 0
			for s := range log.Shards(sink.KindFailures) {
				var want []*sink.StoredFailure
				for f, err := range log.Failures(s) {
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, f)
				}
				i := 0
				for got, err := range log.FailureFacts(s) {
					if err != nil {
						t.Fatal(err)
					}
					differ(t, i, got, want[i], "OutputIDs", "Logprobs", "Text", "RunIDs", "Model", "Messages", "Metadata", "RolloutID")
					i++
				}
				failures += i
			}
			if rows < 5 || failures < 2 {
				t.Errorf("%d rows and %d failures were compared", rows, failures)
			}
		})
	}
}

// differ compares two structs except for the left-out fields, which must be zero.
func differ[T any](t *testing.T, i int, got, want *T, leftOut ...string) {
	t.Helper()
	g, w := reflect.ValueOf(got).Elem(), reflect.ValueOf(want).Elem()
	out := map[string]bool{}
	for _, name := range leftOut {
		out[name] = true
	}
	for f := range g.NumField() {
		name, gv, wv := g.Type().Field(f).Name, g.Field(f), w.Field(f)
		switch {
		case out[name]:
			if !gv.IsZero() {
				t.Errorf("row %d: %s is %v, want nothing", i, name, gv)
			}
		case gv.Kind() == reflect.Slice && gv.Len() == 0 && wv.Len() == 0:
		case name == "Logprobs": // NaN is not equal to itself
			if got, want := fmt.Sprint(gv), fmt.Sprint(wv); got != want {
				t.Errorf("row %d: %s is %.200s, want %.200s", i, name, got, want)
			}
		case gv.Kind() == reflect.Pointer && !gv.IsNil() && !wv.IsNil():
			if got, want := fmt.Sprint(gv.Elem()), fmt.Sprint(wv.Elem()); got != want { // equal for NaN too
				t.Errorf("row %d: %s is %s, want %s", i, name, got, want)
			}
		case !reflect.DeepEqual(gv.Interface(), wv.Interface()):
			t.Errorf("row %d: %s is %.200v, want %.200v", i, name, gv, wv)
		}
	}
}

// TestFactsStop tests that a reader that stops early gets no more rows.
func TestFactsStop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sinktest.Write(t, dir, sink.Config{}, samples(5))
	log, err := sink.ReadLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for s := range log.Shards(sink.KindData) {
		for _, err := range log.Facts(s) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 2 {
				break
			}
		}
	}
	if n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// TestFactsCheckTheDigest tests that a shard with a wrong digest is not read, as with Rows.
func TestFactsCheckTheDigest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sinktest.Write(t, dir, sink.Config{}, samples(5))
	log, err := sink.ReadLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	for s := range log.Shards(sink.KindData) {
		name := filepath.Join(dir, filepath.FromSlash(s.Path))
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		body[len(body)/2] ^= 1 // in the tokens, which Facts does not read
		if err := os.WriteFile(name, body, 0o666); err != nil {
			t.Fatal(err)
		}
		for _, err := range log.Facts(s) {
			if !errors.Is(err, sink.ErrCorrupt) {
				t.Fatalf("error %v, want an error that reports it", err)
			}
		}
	}
}
