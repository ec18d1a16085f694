package sink_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestReadEnd tests that the end of a log is the same as in the log, whatever was known before, and
// that it costs few requests.
func TestReadEnd(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	builder := sinktest.NewBuilder(1)
	known := []sink.End{{}}
	check := func(what string) {
		t.Helper()
		log := b.readLog(t)
		want := sink.End{Seq: log.Last(), Sealed: log.Sealed()}
		if claim := log.Claim(); claim != nil {
			want.Epoch, want.Worker = claim.Epoch, claim.Worker
		}
		for _, k := range known {
			before := b.reads()
			if got, err := sink.ReadEnd(b, k); err != nil || got != want {
				t.Errorf("%s: ReadEnd(%+v) = %+v, %v, want %+v", what, k, got, err, want)
			}
			if n := b.reads() - before; n > 3 || k == want && n > 1 {
				t.Errorf("%s: ReadEnd(%+v) made %d requests", what, k, n)
			}
		}
		known = append(known, want)
	}
	check("empty")
	for _, worker := range []string{"one", "two"} {
		cfg := b.next(t, sink.Config{CommitGroups: true, MergeAt: 2})
		cfg.Worker = worker
		d := open(t, t.TempDir(), cfg)
		check("claimed")
		wait := start(t.Context(), t, d)
		for range 3 {
			commitAll(t, d, alone([]*tokenize.Sample{builder.Sample(builder.Row(2, 3))})...)
		}
		must(t, errors.Join(d.Close(t.Context()), wait()))
		check("committed")
		if worker == "two" {
			must(t, d.Seal())
			check("sealed")
		}
	}
	if known := known[len(known)-1]; known.Epoch != 2 || known.Worker != "two" || !known.Sealed {
		t.Errorf("the end is %+v", known)
	}
}

// TestAddStats tests that Add adds all fields.
func TestAddStats(t *testing.T) {
	t.Parallel()
	var one, sum, zero sink.Stats
	setAll(reflect.ValueOf(&one).Elem(), 3)
	for range 2 {
		sum.Add(one)
	}
	setAll(reflect.ValueOf(&one).Elem(), 6)
	if sum != one || sum == zero {
		t.Errorf("the sum is %+v, want %+v", sum, one)
	}
}

// setAll sets all numbers in a value.
func setAll(v reflect.Value, n int64) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			setAll(field, n)
		}
	default:
		v.SetInt(n)
	}
}
