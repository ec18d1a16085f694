package collector_test

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

func TestRetryFailedMendsOnlyFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: except("t2", step{runErr: collector.ErrServer}, step{takes: time.Second})}
		s, j := &shelf{atOnce: true}, &notebook{}
		var kinds []string
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.RetryFailed, cfg.Planned, cfg.Journal, cfg.MaxFailures, cfg.Retries = true, 6, j, 4, 1
			cfg.Left = lefts(map[string]collector.SampleState{
				"t0-0": {Done: true, Attempts: 1}, "t1-0": {Failed: collector.ClassMalformedCall, Attempts: 2, Charged: 9},
				"t2-0": {Failed: collector.ClassTimeoutTotal, Attempts: 3, Charged: 4}, "t3-0": {Attempts: 1},
				"t4-0": {Failed: collector.ClassCensored, Attempts: 1},
			})
			cfg.Events.AttemptStarted = func(a collector.Attempt, _ string) { kinds = append(kinds, a.Kind.String()) }
		})
		go func() {
			time.Sleep(500 * time.Millisecond)
			counts(t, c, 1, 1, 1, 3) // t1 is being retried; t3 and t5 remain
			time.Sleep(time.Second)
			counts(t, c, 2, 0, 1, 3) // t2 is being retried
		}()
		finish(t, c, tasks(6))
		b.check(t)
		st := counts(t, c, 3, 1, 0, 2)
		if st.Earlier != (collector.Earlier{Committed: 1}) || st.ByClass[collector.ClassServerError] != 1 || len(st.ByClass) != 1 {
			t.Errorf("earlier %+v, by class %v", st.Earlier, st.ByClass)
		}
		want := []string{"data_retry", "infra_retry", "infra_retry", "infra_retry"}
		same(t, "kinds", kinds, want)
		if got := s.samples[0].Attempt; got != 3 {
			t.Errorf("attempt %d of t1, want 3", got)
		}
	})
}

func TestCancelledRetryKeepsFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: func(collector.Attempt) step { return step{hang: true} }}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.RetryFailed, cfg.Endpoints[0].MaxInFlight = true, 2
			cfg.Left = lefts(map[string]collector.SampleState{"t0-0": {Failed: collector.ClassDecode}, "t1-0": {Failed: collector.ClassCensored}})
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fails(ctx, t, c, tasks(2), context.DeadlineExceeded)
		st := counts(t, c, 0, 1, 1, 0)
		if st.Earlier != (collector.Earlier{Failed: 1, Skipped: 1}) {
			t.Errorf("earlier %+v", st.Earlier)
		}
	})
}

// Budgets continue where an earlier process left them.
func TestBudgetsContinue(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		left     collector.SampleState
		err      error
		attempts int
	}{
		{"none used", collector.SampleState{}, collector.ErrServer, 3},
		{"one retry used", collector.SampleState{Attempts: 1, Charged: 1}, collector.ErrServer, 2},
		{"all retries used", collector.SampleState{Attempts: 5, Charged: 2}, collector.ErrServer, 1},
		{"one data retry used", collector.SampleState{Attempts: 1, DataCharged: 1}, collector.ErrAgent, 3},
		{"retries are not data retries", collector.SampleState{Attempts: 2, Charged: 2}, collector.ErrAgent, 4},
		{"what no roll mends", collector.SampleState{}, collector.ErrNoTurns, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &scripted{script: except("t0", step{}, step{runErr: tt.err})}
				c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
					cfg.Retries, cfg.DataRetries = 2, 3
					cfg.Left = lefts(map[string]collector.SampleState{"t0-0": {Attempts: 1}, "t1-0": tt.left})
				})
				finish(t, c, tasks(2))
				if st := c.Stats(); st.Attempts != 1+tt.attempts || st.Failed != 1 {
					t.Errorf("%d attempts, want %d", st.Attempts-1, tt.attempts)
				}
			})
		})
	}
}

type spanKey struct{}

// Tasks are read only as often and as far as needed.
func TestHowOftenTasksAreRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		left func(string) collector.SampleState
		want int
	}{
		{"no lookup", nil, 1},
		{"nothing left", lefts(nil), 2},
		{"all done", func(string) collector.SampleState { return collector.SampleState{Done: true} }, 1},
		{"all begun", func(string) collector.SampleState { return collector.SampleState{Attempts: 1} }, 2},
		{"some begun", lefts(map[string]collector.SampleState{"t1-0": {Attempts: 1}}), 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reads := 0
			var source iter.Seq2[*collector.Task, error] = func(yield func(*collector.Task, error) bool) {
				reads++
				tasks(4)(yield)
			}
			c := setup(t, &scripted{}, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Left = tt.left })
			finish(t, c, source)
			if reads != tt.want || c.Stats().Remaining != 0 {
				t.Errorf("read %d times, want %d; stats %+v", reads, tt.want, c.Stats())
			}
		})
	}
}
