package collector_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// A delayed error has the delay that a server asked for.
type delayed time.Duration

func (d delayed) Error() string             { return "429 too many requests" }
func (d delayed) Unwrap() error             { return collector.ErrBusy }
func (d delayed) RetryDelay() time.Duration { return time.Duration(d) }

func TestRetryWaits(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	type waits struct {
		jitter float64
		errs   []error // of the attempts before the good one
		want   []time.Duration
	}
	busy := collector.ErrBusy
	type errs = []error
	type times = []time.Duration
	bubbles(t, map[string]waits{
		"doubles up to 4s":               {0, slices.Repeat(errs{busy}, 6), times{500 * ms, s, 2 * s, 4 * s, 4 * s, 4 * s}},
		"jitter adds the other half":     {0.5, errs{busy, busy}, times{750 * ms, 1500 * ms}},
		"the server's delay counts once": {0, errs{fmt.Errorf("send: %w", delayed(7*s)), busy}, times{7 * s, s}},
		// Many clients receive the same delay.
		"jitter is added to the server's delay": {0.5, errs{delayed(7 * s)}, times{7250 * ms}},
		"a shorter delay than ours":             {0, errs{delayed(ms)}, times{500 * ms}},
		"the server's delay is capped":          {0, errs{delayed(24 * time.Hour)}, times{10 * s}},
	}, func(r *rig, tt waits) {
		const takes = 3 * s
		retries := len(tt.errs)
		r.b.script = func(a collector.Attempt) step {
			if a.N <= retries {
				return step{takes: takes, runErr: tt.errs[a.N-1]}
			}
			return step{takes: takes}
		}
		var got []time.Duration
		r.cfg.Retries = retries
		r.cfg.BackoffMin, r.cfg.BackoffMax, r.cfg.RetryAfterMax = s, 8*s, 10*s
		r.cfg.Jitter = func() float64 { return tt.jitter }
		r.cfg.Events.RetryWaiting = func(_ collector.Attempt, _ error, d time.Duration) { got = append(got, d) }
		r.finish(tasks(1))
		same(r, "waits", got, tt.want...)
		working := takes * time.Duration(retries+1)
		whole := working
		for _, d := range tt.want {
			whole += d
		}
		sample := r.s.samples[0]
		same(r, "time, duration, working", []time.Duration{r.took, sample.Duration, sample.Working},
			whole, whole, working)
		st := r.counts(1, 0, 0, 0)
		same(r, "attempt, attempts, retries", []int{int(sample.Attempt), st.Attempts, st.Retries},
			retries+1, retries+1, retries)
	})
}

// A server that is busy for ten minutes costs no retries, and one without end fails the sample.
func TestBusyServerCostsNoRetries(t *testing.T) {
	bothWays(t, func(r *rig, ends bool) {
		start := time.Now()
		r.b.script = func(a collector.Attempt) step {
			if a.Task.ID == "t1" && (!ends || time.Since(start) < 10*time.Minute) {
				return step{openErr: delayed(3 * time.Second)}
			}
			return step{}
		}
		r.cfg.BusyMax, r.cfg.BackoffMin = 20*time.Minute, 20*time.Second
		r.cfg.Events.RetryWaiting = func(_ collector.Attempt, _ error, d time.Duration) {
			within(r, "wait, from half of 20s", d, 10*time.Second, 30*time.Second)
		}
		r.finish(tasks(3))
		if ends {
			r.counts(3, 0, 0, 0)
			return
		}
		st := r.counts(2, 1, 0, 0)
		within(r, "time", r.took, 20*time.Minute, 21*time.Minute)
		is(r, "rate limited", st.ByClass[collector.ClassRateLimited], 1)
	})
}

func TestOnlyInfrastructureIsRetried(t *testing.T) {
	cases := map[string]collector.Class{}
	for class := range causes {
		cases[class.String()] = class
	}
	bubbles(t, cases, func(r *rig, class collector.Class) {
		err := causes[class]
		r.b.script = except("t1", step{runErr: err}, step{})
		r.cfg.Retries, r.cfg.Planned, r.cfg.BusyMax = 1, 3, 1
		if class.Fatal() {
			r.fails(r.Context(), tasks(3), err).counts(1, 0, 0, 2)
			return
		}
		r.finish(tasks(3))
		if class == collector.ClassCensored {
			r.counts(2, 0, 1, 0)
			return
		}
		st := r.counts(2, 1, 0, 0)
		want := 0
		if class.Retryable() {
			want = 1
		}
		if class == collector.ClassRateLimited {
			want = 2 // the first is within BusyMax
		}
		same(r, "retries, failed samples", []int{st.Retries, st.ByClass[class]}, want, 1)
		is(r, "failed attempts", st.FailedByClass[class], want+1)
		failed := slices.IndexFunc(r.s.samples, func(s *tokenize.Sample) bool { return s.TaskID == "t1" })
		f := r.s.samples[failed]
		same(r, "attempt, rows, failures", []int{int(f.Attempt), len(f.Rows), len(f.Failures)}, want+1, 0, 1)
		is(r, "status", f.Status, "error")
	})
}

func TestAttemptTimeout(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = except("t1", step{hang: true, closing: time.Second}, step{closing: time.Second})
		r.s.takes = time.Hour // the sink's time is not part of the attempt
		r.cfg.AttemptTimeout = time.Minute
		is(r, "timeouts", r.finish(tasks(3)).counts(2, 1, 0, 0).ByClass[collector.ClassTimeoutTotal], 1)
		f := r.s.samples[1].Failures[0]
		same(r, "stage and class", []string{f.Stage, f.Class}, "run", "timeout_total")
	})
}

func TestCloseIsBoundedAndItsFailureCounted(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = func(a collector.Attempt) step {
			return map[string]step{"t0": {closing: 24 * time.Hour}, "t1": {closeErr: errPlain}}[a.Task.ID]
		}
		var failed []string
		r.cfg.CloseTimeout = time.Minute
		r.cfg.Events.CloseFailed = func(a collector.Attempt, _ string, err error) {
			failed = append(failed, fmt.Sprintf("%s: %v", a.Task.ID, err))
		}
		r.finish(tasks(3))
		is(r, "time", r.took, time.Minute)
		is(r, "close failures", r.counts(3, 0, 0, 0).CloseFailures, 2)
		same(r, "events", failed, "t0: "+context.DeadlineExceeded.Error(), "t1: plain")
	})
}

func TestToleranceEndsTheRun(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = always(step{runErr: collector.ErrRejected})
		j := r.notes()
		r.cfg.MaxFailures, r.cfg.Planned = 3, 10
		r.fails(r.Context(), tasks(10), collector.ErrTolerance).counts(0, 4, 0, 6)
		// The journal has the End of every sample in the sink, including the last one.
		is(r, "the last note", j.lines[len(j.lines)-1], "end t3-0/1 bad_request false")
	})
}

// A server that answers everything except removals of agents costs a run one CloseTimeout, for any
// number of samples in any stage.
func TestRemovalsThatAreNotAnsweredAreWaitedForOnce(t *testing.T) {
	bubbles(t, map[string]int{"one at a time": 1, "two": 2, "all": 6}, func(r *rig, inFlight int) {
		r.b.script = func(a collector.Attempt) step {
			takes := 10 * time.Millisecond
			if inFlight == 6 { // the last one ends just before the first is given up
				takes = map[string]time.Duration{"t4": 29 * time.Second, "t5": 29900 * time.Millisecond}[a.Task.ID]
			}
			return step{takes: takes, closing: 24 * time.Hour}
		}
		r.room(inFlight)
		r.finish(tasks(6))
		within(r, "time", r.took, 30*time.Second, 36*time.Second)
		st := r.counts(6, 0, 0, 0)
		is(r, "close failures", st.CloseFailures, 6)
		is(r, "mute", st.Endpoints[0].Mute, true)
	})
}

// A server with slow or single lost removals does not become mute, and a server that was silent for
// a while gets longer removals again.
func TestSlowRemovalsGoOn(t *testing.T) {
	type removals struct {
		inFlight    int
		first, last int           // the agents that are removed after an hour
		others      time.Duration // for the removal of the others
		left        int
	}
	bubbles(t, map[string]removals{
		"slow":              {4, 0, 0, 20 * time.Second, 0},
		"one is lost":       {4, 2, 2, 2 * time.Second, 1},
		"silent, then slow": {1, 1, 2, 4 * time.Second, 6},
	}, func(r *rig, tt removals) {
		var begun atomic.Int64
		r.b.script = func(collector.Attempt) step {
			if n := int(begun.Add(1)); n >= tt.first && n <= tt.last {
				return step{takes: time.Second, closing: time.Hour}
			}
			return step{takes: time.Second, closing: tt.others}
		}
		r.room(tt.inFlight)
		r.finish(tasks(60))
		st := r.c.Stats()
		is(r, "close failures", st.CloseFailures, tt.left)
		is(r, "mute", st.Endpoints[0].Mute, false)
	})
}
