package collector

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

// A sample that arrives after the close stays out of the backlog, and its deadline cuts nothing.
func TestBacklogClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog(&feed{c: &Collector{}})
		b.close()
		cl := claim{sample: sample{task: &Task{}, groupSize: 1, cut: cutoff{deadline: time.Now().Add(time.Minute)}}}
		if more, err := b.add(t.Context(), cl); more || err != nil {
			t.Errorf("add: %v, %v, want false", more, err)
		}
		if b.list.Len() != 0 {
			t.Errorf("%d samples in the backlog", b.list.Len())
		}
		time.Sleep(time.Hour) // fake time: the deadline passes
	})
}

func TestEventsAreNilSafe(t *testing.T) {
	t.Parallel()
	v := reflect.ValueOf(Events{}.withDefaults(slog.New(slog.DiscardHandler)))
	for i := range v.NumField() {
		if v.Field(i).IsNil() {
			t.Errorf("%s has no default", v.Type().Field(i).Name)
		}
	}
}

// The redacted error explains why an attempt was not taken over, without text of a server or a
// model.
func TestLostAnswerRedacted(t *testing.T) {
	t.Parallel()
	const prose = "canary prose"
	for _, tt := range []struct {
		cause error
		want  string
	}{
		{fmt.Errorf("%w: %s", ErrGone, prose), "answer lost, and the server's record of it is incomplete: hole"},
		{fmt.Errorf("%w: reset", ErrConnection), "answer lost, and the server's record of it is incomplete: hole; cause: collector: connection failed: reset"},
	} {
		err := fmt.Errorf("reattach: %w", &lostAnswerError{cause: tt.cause, why: errors.New(prose), word: "hole"})
		if got := Redacted(err); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestYieldAddsEverything(t *testing.T) {
	t.Parallel()
	var sum, one Yield
	v := reflect.ValueOf(&one).Elem()
	for i := range v.NumField() {
		v.Field(i).SetInt(int64(i + 1))
	}
	sum.add(one)
	sum.add(one)
	for i := range v.NumField() {
		if got, want := reflect.ValueOf(sum).Field(i).Int(), int64(2*(i+1)); got != want {
			t.Errorf("%s is %d, want %d", v.Type().Field(i).Name, got, want)
		}
	}
}

// The needed number is rounded up, but not for a binary rounding error of the factor.
func TestTailNeed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		factor  float64
		planned int
		want    int
	}{
		{"exact in binary", 1.25, 100, 80},
		{"just above in binary", 1.14, 57, 50},
		{"just below in binary", 1.1, 33, 30},
		{"a million", 1.05, 1_050_000, 1_000_000},
		{"rounded up", 1.3, 100, 77},
		{"less than one too many", 1.05, 8, 8},
		{"one", 1.05, 1, 1},
		{"all but nothing", 1.0000001, 7, 7},
		{"none", 2, 0, 0},
	} {
		if got := (Tail{Kind: TailOversample, Factor: tt.factor}).need(tt.planned); got != tt.want {
			t.Errorf("%s: need(%d) with factor %v = %d, want %d", tt.name, tt.planned, tt.factor, got, tt.want)
		}
	}
}
