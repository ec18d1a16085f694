package collector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

// A delayed error has the delay that a server asked for.
type delayed time.Duration

func (d delayed) Error() string             { return "429 too many requests" }
func (d delayed) Unwrap() error             { return collector.ErrBusy }
func (d delayed) RetryDelay() time.Duration { return time.Duration(d) }

func TestRetryWaits(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		jitter float64
		errs   []error // of the attempts before the good one
		want   []time.Duration
	}{
		{
			"doubles up to its bound, half of it fixed", 0,
			[]error{collector.ErrBusy, collector.ErrBusy, collector.ErrBusy, collector.ErrBusy, collector.ErrBusy, collector.ErrBusy},
			[]time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second},
		},
		{
			"jitter adds the other half", 0.5,
			[]error{collector.ErrBusy, collector.ErrBusy},
			[]time.Duration{750 * time.Millisecond, 1500 * time.Millisecond},
		},
		{
			"the server's delay counts once", 0,
			[]error{fmt.Errorf("send: %w", delayed(7*time.Second)), collector.ErrBusy},
			[]time.Duration{7 * time.Second, time.Second},
		},
		{
			"jitter is added to the server's delay: many were told the same", 0.5,
			[]error{delayed(7 * time.Second)},
			[]time.Duration{7250 * time.Millisecond},
		},
		{
			"a shorter delay than ours is no reason to hurry", 0,
			[]error{delayed(time.Millisecond)},
			[]time.Duration{500 * time.Millisecond},
		},
		{"the server's delay is capped", 0, []error{delayed(24 * time.Hour)}, []time.Duration{10 * time.Second}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const takes = 3 * time.Second
				b := &scripted{script: func(a collector.Attempt) step {
					if a.N <= len(tt.errs) {
						return step{takes: takes, runErr: tt.errs[a.N-1]}
					}
					return step{takes: takes}
				}}
				var got []time.Duration
				s := &shelf{atOnce: true}
				c := setup(t, b, s, func(cfg *collector.Config) {
					cfg.Retries = len(tt.errs)
					cfg.BackoffMin, cfg.BackoffMax, cfg.RetryAfterMax = time.Second, 8*time.Second, 10*time.Second
					cfg.Jitter = func() float64 { return tt.jitter }
					cfg.Events.RetryWaiting = func(_ collector.Attempt, _ error, d time.Duration) { got = append(got, d) }
				})
				took := finish(t, c, tasks(1))
				b.check(t)
				same(t, "waits", got, tt.want)
				var waited time.Duration
				for _, d := range tt.want {
					waited += d
				}
				working := takes * time.Duration(len(tt.errs)+1)
				if took != waited+working {
					t.Errorf("took %v, want %v", took, waited+working)
				}
				sample := s.samples[0]
				if sample.Attempt != int32(len(tt.errs)+1) || sample.Duration != waited+working || sample.Working != working {
					t.Errorf("attempt %d duration %v working %v, want %d, %v, %v",
						sample.Attempt, sample.Duration, sample.Working, len(tt.errs)+1, waited+working, working)
				}
				st := counts(t, c, 1, 0, 0, 0)
				if st.Attempts != len(tt.errs)+1 || st.Retries != len(tt.errs) {
					t.Errorf("attempts, retries = %d, %d", st.Attempts, st.Retries)
				}
			})
		})
	}
}

// A server that is busy for ten minutes costs no retries, and one without end fails the sample.
func TestBusyServerCostsNoRetries(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			b := &scripted{script: func(a collector.Attempt) step {
				if a.Task.ID == "t1" && (!ends || time.Since(start) < 10*time.Minute) {
					return step{openErr: delayed(3 * time.Second)}
				}
				return step{}
			}}
			c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
				cfg.BusyMax, cfg.BackoffMin = 20*time.Minute, 20*time.Second
				cfg.Events.RetryWaiting = func(a collector.Attempt, _ error, d time.Duration) {
					if d < 10*time.Second || d > 30*time.Second {
						t.Errorf("waits %v after attempt %d, want half of 20s to 30s", d, a.N)
					}
				}
			})
			finish(t, c, tasks(3))
			took, st := time.Since(start), c.Stats()
			if ends {
				counts(t, c, 3, 0, 0, 0)
				return
			}
			counts(t, c, 2, 1, 0, 0)
			if took < 20*time.Minute || took > 21*time.Minute || st.ByClass[collector.ClassRateLimited] != 1 {
				t.Errorf("took %v, by class %v, want 20m and rate_limited", took, st.ByClass)
			}
		})
	}
}

func TestOnlyInfrastructureIsRetried(t *testing.T) {
	t.Parallel()
	for _, class := range collector.Classes() {
		err, ok := causes[class]
		if !ok {
			continue
		}
		t.Run(class.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &scripted{script: except("t1", step{runErr: err}, step{})}
				s := &shelf{atOnce: true}
				c := setup(t, b, s, func(cfg *collector.Config) { cfg.Retries, cfg.Planned, cfg.BusyMax = 1, 3, 1 })
				runErr := c.Run(t.Context(), tasks(3))
				b.check(t)
				st := c.Stats()
				switch {
				case class.Fatal():
					if !errors.Is(runErr, err) {
						t.Errorf("Run = %v, want %v", runErr, err)
					}
					counts(t, c, 1, 0, 0, 2)
				case class.Retryable():
					counts(t, c, 2, 1, 0, 0)
					want := 1
					if class == collector.ClassRateLimited {
						want = 2 // the first is within BusyMax
					}
					if st.Retries != want || st.ByClass[class] != 1 || st.FailedByClass[class] != want+1 {
						t.Errorf("%d retries, want %d; by class %v, attempts by class %v", st.Retries, want, st.ByClass, st.FailedByClass)
					}
					found := 0
					for _, f := range s.samples {
						if f.TaskID != "t1" {
							continue
						}
						found++
						if f.Attempt != int32(want+1) || f.Status != "error" || len(f.Rows) != 0 || len(f.Failures) != 1 {
							t.Errorf("failure = %+v", f)
						}
					}
					if found != 1 {
						t.Errorf("found %d samples of the failed task, want 1", found)
					}
				case class == collector.ClassCensored:
					counts(t, c, 2, 0, 1, 0)
				default:
					counts(t, c, 2, 1, 0, 0)
					if st.Retries != 0 || st.ByClass[class] != 1 {
						t.Errorf("%d retries, by class %v", st.Retries, st.ByClass)
					}
				}
			})
		})
	}
}

func TestAttemptTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: func(a collector.Attempt) step {
			return step{hang: a.Task.ID == "t1", closing: time.Second}
		}}
		s := &shelf{atOnce: true, takes: time.Hour} // the sink's time is not part of the attempt
		c := setup(t, b, s, func(cfg *collector.Config) { cfg.AttemptTimeout = time.Minute })
		finish(t, c, tasks(3))
		b.check(t)
		st := counts(t, c, 2, 1, 0, 0)
		if st.ByClass[collector.ClassTimeoutTotal] != 1 {
			t.Errorf("by class %v, want a timeout", st.ByClass)
		}
		f := s.samples[1].Failures[0]
		if f.Stage != "run" || f.Class != "timeout_total" {
			t.Errorf("failure %+v", f)
		}
	})
}

func TestCloseIsBoundedAndItsFailureCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: func(a collector.Attempt) step {
			switch a.Task.ID {
			case "t0":
				return step{closing: 24 * time.Hour}
			case "t1":
				return step{closeErr: errPlain}
			}
			return step{}
		}}
		var failed []string
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.CloseTimeout = time.Minute
			cfg.Events.CloseFailed = func(a collector.Attempt, _ string, err error) {
				failed = append(failed, fmt.Sprintf("%s: %v", a.Task.ID, err))
			}
		})
		if took := finish(t, c, tasks(3)); took != time.Minute {
			t.Errorf("took %v, want 1m", took)
		}
		counts(t, c, 3, 0, 0, 0)
		want := []string{"t0: " + context.DeadlineExceeded.Error(), "t1: plain"}
		if c.Stats().CloseFailures != 2 || !slices.Equal(failed, want) {
			t.Errorf("%d close failures %v, want %v", c.Stats().CloseFailures, failed, want)
		}
	})
}

func TestToleranceEndsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: func(collector.Attempt) step { return step{runErr: collector.ErrRejected} }}
		j := &notebook{}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.MaxFailures, cfg.Planned, cfg.Journal = 3, 10, j
			cfg.Endpoints[0].MaxInFlight = 1
		})
		fails(t.Context(), t, c, tasks(10), collector.ErrTolerance)
		counts(t, c, 0, 4, 0, 6)
		// The journal has the End of every sample in the sink, including the last one.
		if last := j.lines[len(j.lines)-1]; last != "end t3-0/1 bad_request false" {
			t.Errorf("the last note is %q, want the end of the fourth sample", last)
		}
	})
}
