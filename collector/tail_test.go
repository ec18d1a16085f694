package collector_test

import (
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
	return step{takes: time.Duration(number(a)+1) * time.Minute}
}

// cutAt sets the bound of the samples in flight, the planned samples and the deadline of the tail.
func (r *rig) cutAt(deadline time.Duration, inFlight, planned int) {
	r.room(inFlight)
	r.cfg.Planned = planned
	r.cfg.Tail = collector.Tail{Kind: collector.TailDeadline, Deadline: deadline}
}

func TestTailDeadline(t *testing.T) {
	bubble(t, func(r *rig) {
		const deadline = 5*time.Minute + 30*time.Second
		r.b.script = slowTail
		r.cutAt(deadline, 5, 20)
		r.cfg.MaxFailures, r.cfg.Retries = 1, 3
		r.finish(tasks(20)) // a cut sample is not a failure
		is(r, "time", r.took, deadline)
		// t0 to t4 are done by minute 5; t5 to t9 began at 1, 2, … 5.
		st := r.counts(5, 0, 15, 0)
		same(r, "censored, unstarted, retries", []int{st.Censored, st.Unstarted, st.Retries}, 5, 10, 0)
		is(r, "censored attempts", st.FailedByClass[collector.ClassCensored], 5)
		is(r, "failure classes", len(st.ByClass), 0)
		cut := 0
		for _, sample := range r.s.samples {
			if len(sample.Failures) == 1 {
				cut++
				f := sample.Failures[0]
				same(r, "class, stage, status", []string{f.Class, f.Stage, sample.Status},
					"censored", "run", "error")
			}
		}
		is(r, "failure rows", cut, 5)
		is(r, "tail", r.c.Tail(), collector.TailStats{
			Cut:      true,
			Kept:     collector.Measures{N: 5, MeanDuration: 3 * time.Minute, P50Duration: 3 * time.Minute, Known: 5, MeanSampled: 3, P50Sampled: 3},
			Censored: collector.Measures{N: 5, MeanDuration: 150 * time.Second, P50Duration: 150 * time.Second},
		})
	})
}

func TestTailOversample(t *testing.T) {
	type oversample struct {
		factor                     float64
		bad                        string // the task that fails, and so does not count
		committed, failed, skipped int
		took                       time.Duration
	}
	bubbles(t, map[string]oversample{
		"with a failure": {1.05, "t2", 20, 1, 0, 21 * time.Minute},
		"with a cut":     {1.3, "", 17, 0, 4, 17 * time.Minute}, // 21 / 1.3 = 16.2
	}, func(r *rig, tt oversample) {
		r.b.script = func(a collector.Attempt) step {
			s := slowTail(a)
			if a.Task.ID == tt.bad {
				s.runErr = collector.ErrRejected
			}
			return s
		}
		r.room(21)
		r.cfg.Planned, r.cfg.Tail = 21, collector.Tail{Kind: collector.TailOversample, Factor: tt.factor}
		r.finish(tasks(21))
		is(r, "time", r.took, tt.took)
		is(r, "kept", r.c.Tail().Kept.N, tt.committed)
		r.counts(tt.committed, tt.failed, tt.skipped, 0)
	})
}

// A sample that waits for its retry when the tail is cut becomes a cut sample with the tokens of
// its last attempt.
func TestTailCutsWhatWaits(t *testing.T) {
	bubble(t, func(r *rig) {
		fails := step{takes: time.Second, runErr: collector.ErrServer, reply: goodReply}
		r.b.script = except("t0", fails, step{takes: time.Hour})
		r.cutAt(time.Minute, 2, 5)
		r.cfg.Retries, r.cfg.BackoffMin, r.cfg.BackoffMax = 3, time.Hour, time.Hour
		r.finish(tasks(5))
		is(r, "time", r.took, time.Minute)
		r.counts(0, 0, 5, 0)
		is(r, "samples with the sink", len(r.s.samples), 2) // t0 and t1
		for _, sample := range r.s.samples {
			f := sample.Failures[0]
			if f.Class != "censored" || !strings.Contains(f.Error, collector.ErrCensored.Error()) || sample.TaskID == "t0" && (len(f.OutputIDs) != 3 || f.Stage != "run") {
				r.Errorf("%s: %+v", sample.TaskID, f)
			}
		}
		if cut := r.c.Tail().Censored; cut.N != 2 || cut.Known != 1 || cut.MeanSampled != 3 {
			r.Errorf("tail %+v", cut)
		}
	})
}

// Samples in flight remain if a run is stopped after a cut.
func TestTailOfAStoppedRun(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = slowTail
		r.s.err = func(int) error { return errPlain }
		r.cutAt(30*time.Second, 3, 10)
		r.fails(r.Context(), tasks(10), errPlain).counts(0, 0, 0, 10)
	})
}

// Samples committed by an earlier process count as succeeded.
func TestTailOfAResumedRun(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = slowTail
		left := states{"t0-0": {Failed: collector.ClassCensored}}
		for i := 1; i < 8; i++ {
			left[fmt.Sprintf("t%d-0", i)] = collector.SampleState{Done: true}
		}
		r.room(3)
		r.cfg.Planned, r.cfg.Tail = 12, collector.Tail{Kind: collector.TailOversample, Factor: 1.5} // 8
		r.cfg.Left = lefts(left)
		r.finish(tasks(12))
		// t8 was the missing one; t9 and t10 were cut.
		within(r, "unstarted", r.counts(8, 0, 4, 0).Unstarted, 1, 2)
	})
}

func TestTailCutsWhatBegins(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = always(step{takes: time.Hour})
		r.cutAt(time.Minute, 1, 3)
		r.cfg.Events.AttemptStarted = func(collector.Attempt, string) { time.Sleep(2 * time.Minute) }
		r.finish(tasks(3))
		is(r, "time until the attempt is under way", r.took, 2*time.Minute)
		st := r.counts(0, 0, 3, 0)
		same(r, "censored, unstarted", []int{st.Censored, st.Unstarted}, 1, 2)
	})
}

// A deadline after the end of Run cuts nothing.
func TestTailDeadlineAfterTheEnd(t *testing.T) {
	bubbles(t, map[string]error{"finished": nil, "stopped": errPlain}, func(r *rig, end error) {
		r.b.script = slowTail
		r.s.err = func(int) error { return end }
		r.cutAt(time.Hour, 3, 3)
		r.fails(r.Context(), tasks(3), end)
		before := r.c.Stats()
		time.Sleep(2 * time.Hour)
		after := r.c.Stats()
		is(r, "cut", r.c.Tail().Cut, false)
		same(r, "skipped, remaining", []int{after.Skipped, after.Remaining}, 0, before.Remaining)
	})
}

// Samples that end at the deadline are each kept or cut, and the counts add up.
func TestTailCutAsSamplesEnd(t *testing.T) {
	t.Parallel()
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.b.script = always(step{takes: time.Minute})
			r.cutAt(2*time.Minute, 4, 8)
			r.finish(tasks(8))
			st, tail := r.c.Stats(), r.c.Tail()
			kept, cut := tail.Kept.N, tail.Censored.N
			same(r, "committed, censored, remaining", []int{st.Committed, st.Censored, st.Remaining}, kept, cut, 0)
			is(r, "samples with the sink", len(r.s.samples), kept+cut)
			if !tail.Cut && st.Skipped > 0 {
				t.Errorf("%d skipped without a cut", st.Skipped)
			}
		})
	}
}
