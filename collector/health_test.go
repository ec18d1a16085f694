package collector_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

// watched logs the events of endpoints.
func watched(cfg *collector.Config, log *[]string) {
	start := time.Now()
	cfg.Events.EndpointDown = func(name string, err error) {
		what := "down"
		if err == nil {
			what = "up"
		}
		*log = append(*log, fmt.Sprintf("%s %s %v", name, what, time.Since(start).Round(time.Minute)))
	}
	cfg.Events.EndpointLost = func(name string, _ error) {
		*log = append(*log, fmt.Sprintf("%s lost %v", name, time.Since(start).Round(time.Minute)))
	}
}

func TestServerThatNeverAnswersEndsTheRun(t *testing.T) {
	t.Parallel()
	for _, inFlight := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			b := &scripted{script: func(collector.Attempt) step { return step{openErr: collector.ErrConnection} }}
			s := &shelf{}
			var log []string
			c := setup(t, b, s, func(cfg *collector.Config) {
				cfg.Endpoints[0].MaxInFlight, cfg.Planned = inFlight, 1000
				watched(cfg, &log)
			})
			start := time.Now()
			err := c.Run(t.Context(), tasks(1000))
			if !errors.Is(err, collector.ErrUnavailable) || !errors.Is(err, collector.ErrConnection) {
				t.Errorf("Run = %v, want unavailable, and why", err)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			counts(t, c, 0, 0, 0, 1000)
			if len(s.samples) != 0 {
				t.Errorf("%d samples were burnt", len(s.samples))
			}
			same(t, "events", log, []string{"a down 0s", "a lost 0s"})
		})
	}
}

// Samples wait for a server whose engine dies after the trial call, although no sample has had an
// answer yet.
func TestOutageBeforeTheFirstSample(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			b := &scripted{script: func(collector.Attempt) step {
				if time.Since(start) < time.Minute {
					return step{runErr: collector.ErrUnavailable}
				}
				return step{takes: 10 * time.Second}
			}}
			c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
				cfg.Endpoints[0].MaxInFlight, cfg.Retries, cfg.Outage, cfg.Planned = 4, 3, 2*time.Minute, 20
			})
			if answered {
				c.Answered("a")
			}
			err := c.Run(t.Context(), tasks(20))
			if (err == nil) != answered || err != nil && !errors.Is(err, collector.ErrUnavailable) {
				t.Errorf("answered %v: Run = %v", answered, err)
			}
			b.check(t)
			if s := c.Stats(); answered && s.Committed != 20 || s.Failed != 0 {
				t.Errorf("answered %v: %d committed, %d failed", answered, s.Committed, s.Failed)
			}
		})
	}
}

func TestLongOutageEndsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := &scripted{script: func(collector.Attempt) step {
			if time.Since(start) >= 2*time.Minute {
				return step{runErr: collector.ErrServer}
			}
			return step{takes: 10 * time.Second}
		}}
		var log []string
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.Endpoints[0].MaxInFlight, cfg.Retries, cfg.Outage, cfg.Planned = 4, 5, 3*time.Minute, 1000
			watched(cfg, &log)
		})
		fails(t.Context(), t, c, tasks(1000), collector.ErrUnavailable)
		b.check(t)
		counts(t, c, 48, 0, 0, 952)
		same(t, "events", log, []string{"a down 2m0s", "a lost 5m0s"})
	})
}

// Samples that always fail, or whose rollouts are too long, fail and do not end the run, with any
// number of workers.
func TestSamplesThatAlwaysFailAreNoOutage(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		bad      int // number of bad tasks, from the first
		step     step
		inFlight int
		class    collector.Class
	}{
		{"one sample that breaks the server", 1, step{takes: 2 * time.Minute, runErr: collector.ErrServer}, 1, collector.ClassServerError},
		{"long rollouts, one worker", 3, step{hang: true}, 1, collector.ClassTimeoutTotal},
		{"long rollouts, as many as workers", 4, step{hang: true}, 4, collector.ClassTimeoutTotal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &scripted{script: func(a collector.Attempt) step {
					if a.Task.ID != "good" {
						return tt.step
					}
					return step{}
				}}
				var log []string
				c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
					cfg.Endpoints[0].MaxInFlight, cfg.Retries, cfg.AttemptTimeout = tt.inFlight, 5, 10*time.Minute
					watched(cfg, &log)
				})
				// The server answers once before, so that it is known to be up.
				err := c.Run(t.Context(), func(yield func(*collector.Task, error) bool) {
					if yield(&collector.Task{ID: "good", Messages: []string{"hello"}}, nil) {
						time.Sleep(time.Minute)
						tasks(tt.bad)(yield)
					}
				})
				if err != nil {
					t.Errorf("Run = %v", err)
				}
				st := counts(t, c, 1, tt.bad, 0, 0)
				if st.ByClass[tt.class] != tt.bad || st.Retries != 5*tt.bad || len(log) != 0 {
					t.Errorf("by class %v, %d retries, events %v", st.ByClass, st.Retries, log)
				}
			})
		})
	}
}

// The samples of a lost endpoint continue at the others. Its workers claim no more samples, not even
// idle ones.
func TestLostEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lostAt atomic.Int64 // 0: not lost
		var before, after atomic.Int64
		dead := &scripted{script: func(collector.Attempt) step {
			// An attempt that another worker began when the endpoint was lost has the same time.
			if at := lostAt.Load(); at != 0 && time.Now().UnixNano() > at {
				after.Add(1)
			} else {
				before.Add(1)
			}
			return step{openErr: collector.ErrConnection}
		}}
		good := &scripted{script: func(collector.Attempt) step { return step{takes: time.Second} }}
		var log []string
		c := setup(t, dead, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.Endpoints = []collector.Endpoint{
				{Name: "dead", Backend: dead, MaxInFlight: 8}, {Name: "good", Backend: good, MaxInFlight: 1},
			}
			watched(cfg, &log)
			lost := cfg.Events.EndpointLost
			cfg.Events.EndpointLost = func(name string, err error) {
				lost(name, err)
				lostAt.Store(time.Now().UnixNano())
			}
		})
		// The dead endpoint gets three of the first four samples. Five of its workers are idle when
		// it is lost.
		finish(t, c, each(40, func(i int) {
			if i == 4 {
				time.Sleep(10 * time.Minute)
			}
		}))
		good.check(t)
		st := counts(t, c, 40, 0, 0, 0)
		if st.Claimed != 40 || !st.Endpoints[0].Lost || st.Endpoints[1].Lost {
			t.Errorf("claimed %d, endpoints %+v", st.Claimed, st.Endpoints)
		}
		same(t, "events", log, []string{"dead down 0s", "dead lost 0s"})
		if n, late := before.Load(), after.Load(); lostAt.Load() == 0 || n < 8 || late != 0 {
			t.Errorf("%d attempts until the endpoint was lost, %d afterwards", n, late)
		}
	})
}
