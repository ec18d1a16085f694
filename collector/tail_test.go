package collector_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

func TestParseTail(t *testing.T) {
	t.Parallel()
	good := map[string]collector.Tail{
		"wait":            {},
		"deadline=2h0m0s": {Kind: collector.TailDeadline, Deadline: 2 * time.Hour},
		"oversample=1.05": {Kind: collector.TailOversample, Factor: 1.05},
	}
	for text, want := range good {
		if got, err := collector.ParseTail(text); err != nil || got != want {
			t.Errorf("ParseTail(%q) = %+v, %v, want %+v", text, got, err, want)
		}
		if got := want.String(); got != text {
			t.Errorf("String of %+v = %q, want %q", want, got, text)
		}
	}
	for _, text := range []string{"", "cut", "wait=1", "deadline", "deadline=0s", "deadline=-1h", "deadline=5", "oversample", "oversample=1", "oversample=NaN", "oversample=+Inf", "oversample=105", "oversample=4.01", "oversample=1e9", "oversample=0.9"} {
		if got, err := collector.ParseTail(text); err == nil || got != (collector.Tail{}) || !strings.Contains(err.Error(), "oversample=1.05") {
			t.Errorf("ParseTail(%q) = %+v, %v, want an error that lists the valid forms", text, got, err)
		}
	}
	_, err := collector.New(collector.Config{Tail: collector.Tail{Kind: collector.TailOversample, Factor: 1.1}})
	if err == nil || !strings.Contains(err.Error(), "collector.tail: oversample requires planned") {
		t.Errorf("New = %v", err)
	}
}

// slowTail makes task i take i+1 minutes, so that the last tasks are the longest.
func slowTail(a collector.Attempt) step {
	var n int
	fmt.Sscanf(a.Task.ID, "t%d", &n)
	return step{takes: time.Duration(n+1) * time.Minute}
}

func TestTailDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := &scripted{script: slowTail}, &shelf{atOnce: true}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Endpoints[0].MaxInFlight, cfg.Planned, cfg.MaxFailures, cfg.Retries = 5, 20, 1, 3
			cfg.Tail = collector.Tail{Kind: collector.TailDeadline, Deadline: 5*time.Minute + 30*time.Second}
		})
		start := time.Now()
		if err := c.Run(t.Context(), tasks(20)); err != nil {
			t.Fatalf("Run = %v: a cut sample is not a failure", err)
		}
		b.check(t)
		if took := time.Since(start); took != 5*time.Minute+30*time.Second {
			t.Errorf("took %v, want the deadline", took)
		}
		// t0 to t4 are done by minute 5; t5 to t9 began at 1, 2, … 5.
		st := counts(t, c, 5, 0, 15, 0)
		if st.Censored != 5 || st.Unstarted != 10 || st.FailedByClass[collector.ClassCensored] != 5 || len(st.ByClass) != 0 || st.Retries != 0 {
			t.Errorf("censored %d, unstarted %d, attempts by class %v, by class %v", st.Censored, st.Unstarted, st.FailedByClass, st.ByClass)
		}
		rows := 0
		for _, sample := range s.samples {
			if len(sample.Failures) == 1 {
				rows++
				if f := sample.Failures[0]; f.Class != "censored" || f.Stage != "run" || sample.Status != "error" {
					t.Errorf("%s: failure %+v", sample.TaskID, f)
				}
			}
		}
		if rows != 5 {
			t.Errorf("%d failure rows, want 5", rows)
		}
		tail := c.Tail()
		want := collector.TailStats{
			Cut:      true,
			Kept:     collector.Measures{N: 5, MeanDuration: 3 * time.Minute, P50Duration: 3 * time.Minute, Known: 5, MeanSampled: 3, P50Sampled: 3},
			Censored: collector.Measures{N: 5, MeanDuration: 150 * time.Second, P50Duration: 150 * time.Second},
		}
		if tail != want {
			t.Errorf("tail %+v\nwant %+v", tail, want)
		}
	})
}

func TestTailOversample(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		factor                     float64
		bad                        string // the task that fails, and so does not count
		committed, failed, skipped int
		took                       time.Duration
	}{
		{1.05, "t2", 20, 1, 0, 21 * time.Minute},
		{1.3, "", 17, 0, 4, 17 * time.Minute}, // 21 / 1.3 = 16.2
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &scripted{script: func(a collector.Attempt) step {
				s := slowTail(a)
				if a.Task.ID == tt.bad {
					s.runErr = collector.ErrRejected
				}
				return s
			}}
			c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
				cfg.Endpoints[0].MaxInFlight, cfg.Planned = 21, 21
				cfg.Tail = collector.Tail{Kind: collector.TailOversample, Factor: tt.factor}
			})
			if took := finish(t, c, tasks(21)); took != tt.took || c.Tail().Kept.N != tt.committed {
				t.Errorf("took %v, want %v; kept %+v", took, tt.took, c.Tail().Kept)
			}
			b.check(t)
			counts(t, c, tt.committed, tt.failed, tt.skipped, 0)
		})
	}
}

// A sample that waits for its retry when the tail is cut becomes a cut sample with the tokens of
// its last attempt.
func TestTailCutsWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := &scripted{script: except("t0", step{takes: time.Second, runErr: collector.ErrServer, reply: goodReply}, step{takes: time.Hour})}, &shelf{atOnce: true}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Endpoints[0].MaxInFlight, cfg.Planned, cfg.Retries = 2, 5, 3
			cfg.BackoffMin, cfg.BackoffMax = time.Hour, time.Hour
			cfg.Tail = collector.Tail{Kind: collector.TailDeadline, Deadline: time.Minute}
		})
		took := finish(t, c, tasks(5))
		b.check(t)
		if took != time.Minute {
			t.Errorf("took %v, want 1m", took)
		}
		counts(t, c, 0, 0, 5, 0)
		if len(s.samples) != 2 {
			t.Fatalf("%d rows, want the rows of t0 and t1", len(s.samples))
		}
		for _, sample := range s.samples {
			f := sample.Failures[0]
			if f.Class != "censored" || !strings.Contains(f.Error, collector.ErrCensored.Error()) || sample.TaskID == "t0" && (len(f.OutputIDs) != 3 || f.Stage != "run") {
				t.Errorf("%s: %+v", sample.TaskID, f)
			}
		}
		if tail := c.Tail(); tail.Censored.N != 2 || tail.Censored.Known != 1 || tail.Censored.MeanSampled != 3 {
			t.Errorf("tail %+v", tail)
		}
	})
}

// Samples in flight remain if a run is stopped after a cut.
func TestTailOfAStoppedRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("full")
		c := setup(t, &scripted{script: slowTail}, &shelf{err: func(int) error { return full }}, func(cfg *collector.Config) {
			cfg.Endpoints[0].MaxInFlight, cfg.Planned = 3, 10
			cfg.Tail = collector.Tail{Kind: collector.TailDeadline, Deadline: 30 * time.Second}
		})
		fails(t.Context(), t, c, tasks(10), full)
		counts(t, c, 0, 0, 0, 10)
	})
}

// Samples committed by an earlier process count as succeeded.
func TestTailOfAResumedRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: slowTail}
		left := make(map[string]collector.SampleState)
		for i := range 8 {
			key := collector.SampleKey(&collector.Task{ID: fmt.Sprintf("t%d", i), Messages: []string{"hello"}}, 0)
			left[key] = collector.SampleState{Done: true}
			if i == 0 {
				left[key] = collector.SampleState{Failed: collector.ClassCensored}
			}
		}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.Endpoints[0].MaxInFlight, cfg.Planned = 3, 12
			cfg.Tail = collector.Tail{Kind: collector.TailOversample, Factor: 1.5} // 8
			cfg.Left = func(key string) collector.SampleState { return left[key] }
		})
		finish(t, c, tasks(12))
		st := counts(t, c, 8, 0, 4, 0)
		if st.Unstarted != 2 && st.Unstarted != 1 { // t8 was the missing one; t9 and t10 were cut
			t.Errorf("censored %d, unstarted %d", st.Censored, st.Unstarted)
		}
	})
}

func TestTailCutsWhatBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, s := &scripted{script: func(collector.Attempt) step { return step{takes: time.Hour} }}, &shelf{atOnce: true}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Planned = 3
			cfg.Tail = collector.Tail{Kind: collector.TailDeadline, Deadline: time.Minute}
			cfg.Events.AttemptStarted = func(collector.Attempt, string) { time.Sleep(2 * time.Minute) }
		})
		took := finish(t, c, tasks(3))
		b.check(t)
		if took != 2*time.Minute {
			t.Errorf("took %v, want the 2m until the attempt is under way", took)
		}
		st := counts(t, c, 0, 0, 3, 0)
		if st.Censored != 1 || st.Unstarted != 2 {
			t.Errorf("censored %d, unstarted %d, want 1 and 2", st.Censored, st.Unstarted)
		}
	})
}

// A deadline after the end of Run cuts nothing.
func TestTailDeadlineAfterTheEnd(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	for _, tt := range []struct {
		name string
		err  error
	}{{"finished", nil}, {"stopped", full}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := setup(t, &scripted{script: slowTail}, &shelf{atOnce: true, err: func(int) error { return tt.err }}, func(cfg *collector.Config) {
					cfg.Endpoints[0].MaxInFlight, cfg.Planned = 3, 3
					cfg.Tail = collector.Tail{Kind: collector.TailDeadline, Deadline: time.Hour}
				})
				fails(t.Context(), t, c, tasks(3), tt.err)
				before := c.Stats()
				time.Sleep(2 * time.Hour)
				if after := c.Stats(); c.Tail().Cut || after.Skipped != 0 || after.Remaining != before.Remaining {
					t.Errorf("cut %v; skipped %d, remaining %d, want none and %d as at the end", c.Tail().Cut, after.Skipped, after.Remaining, before.Remaining)
				}
			})
		})
	}
}

// Samples that end at the deadline are each kept or cut, and the counts add up.
func TestTailCutAsSamplesEnd(t *testing.T) {
	t.Parallel()
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			b, s := &scripted{script: func(collector.Attempt) step { return step{takes: time.Minute} }}, &shelf{atOnce: true}
			c := setup(t, b, s, func(cfg *collector.Config) {
				cfg.Endpoints[0].MaxInFlight, cfg.Planned = 4, 8
				cfg.Tail = collector.Tail{Kind: collector.TailDeadline, Deadline: 2 * time.Minute}
			})
			finish(t, c, tasks(8))
			b.check(t)
			st, tail := c.Stats(), c.Tail()
			identity(t, st)
			if st.Remaining != 0 || st.Committed != tail.Kept.N || st.Censored != tail.Censored.N || st.Committed+st.Censored != len(s.samples) {
				t.Errorf("%d committed, %d censored, %d remaining; measured %+v; %d samples in the sink", st.Committed, st.Censored, st.Remaining, tail, len(s.samples))
			}
			if !tail.Cut && st.Skipped > 0 {
				t.Errorf("%d skipped without a cut", st.Skipped)
			}
		})
	}
}
