package collector_test

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/limit"
)

// adaptive makes the endpoint adapt its limit, up to most.
func adaptive(most int) func(*collector.Config) {
	return func(cfg *collector.Config) { cfg.Adaptive, cfg.Endpoints[0].MaxInFlight = true, most }
}

// A load counts the current and the highest number of requests at a server.
type load struct {
	mu        sync.Mutex
	now, most int
}

func (l *load) add(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now += n
	l.most = max(l.most, l.now)
	return l.now
}

// The limit falls to the capacity of a server that refuses requests above 20 for 89 s each. No
// sample is lost, and nothing freezes.
func TestLimitFollowsAServerThatTurnsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var busy load
		b := &scripted{}
		b.script = func(collector.Attempt) step {
			if busy.add(1) > 20 {
				busy.add(-1)
				return step{openErr: delayed(89 * time.Second)}
			}
			time.AfterFunc(10*time.Second, func() { busy.add(-1) })
			return step{takes: 10 * time.Second}
		}
		limits := []int{32}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			adaptive(256)(cfg)
			cfg.Events.LimitChanged = func(endpoint string, from, to int, reason string) {
				if endpoint != "a" || from != limits[len(limits)-1] || from == to {
					t.Errorf("%s: %d → %d (%s) after %v", endpoint, from, to, reason, limits)
				}
				limits = append(limits, to)
			}
		})
		took := finish(t, c, tasks(4000))
		b.check(t)
		st := counts(t, c, 4000, 0, 0, 0)
		if l := st.Endpoints[0].Limit; l < 10 || l > 26 || len(limits) < 3 || limits[len(limits)-1] != l {
			t.Errorf("limit %d after %v, want about 20", l, limits)
		}
		// With 20 samples in flight it would take 2000 s.
		if took > 3000*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// The limit does not grow to its maximum on one Letta process, which makes 5 rollouts per second at
// any load.
func TestLimitStaysWhereThroughputIsFlat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		free := time.Now()
		b := &scripted{script: func(collector.Attempt) step {
			mu.Lock()
			defer mu.Unlock()
			if now := time.Now(); free.Before(now) {
				free = now
			}
			free = free.Add(200 * time.Millisecond)
			return step{takes: time.Until(free)}
		}}
		c := setup(t, b, &shelf{atOnce: true}, adaptive(512))
		finish(t, c, tasks(10000))
		if b.most > 64 || c.Stats().Endpoints[0].Limit > 40 {
			t.Errorf("at most %d in flight, limit %d", b.most, c.Stats().Endpoints[0].Limit)
		}
	})
}

// A sample that waits for its retry gives its permit to other samples, and it comes before fresh
// samples when its retry is due.
func TestRetryReleasesPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: func(a collector.Attempt) step {
			if a.N == 1 && a.Task.ID < "t2" { // t0, t1 and t10 to t19
				return step{openErr: delayed(30 * time.Second)}
			}
			return step{takes: 20 * time.Second}
		}}
		var mu sync.Mutex
		var order []string
		start := time.Now()
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			adaptive(200)(cfg)
			cfg.Events.AttemptStarted = func(a collector.Attempt, _ string) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprintf("%s/%d %v", a.Task.ID, a.N, time.Since(start)))
			}
		})
		go func() {
			time.Sleep(10 * time.Second)
			e := c.Stats().Endpoints[0]
			// One refusal cut the limit from 32 to 25; 12 samples wait and 25 are in flight.
			if e.Limit != 25 || e.Waiting != 12 || e.InFlight-e.Waiting > 32 || e.InFlight-e.Waiting < 25 || e.Max != 200 {
				t.Errorf("%+v, want a limit of 25, 12 that wait and the others at work", e)
			}
		}()
		finish(t, c, tasks(90))
		b.check(t)
		counts(t, c, 90, 0, 0, 0)
		// At 30 s the 12 are due. Room for 25 comes at 40 s, and goes to them first. The order
		// within one moment of fake time depends on the scheduler.
		again := 0
		for _, o := range order {
			var name string
			var n int
			var when string
			if _, err := fmt.Sscanf(o, "%3s/%d %s", &name, &n, &when); err != nil {
				fmt.Sscanf(o, "%2s/%d %s", &name, &n, &when)
			}
			if d, _ := time.ParseDuration(when); n == 2 && d >= 30*time.Second && d < 42*time.Second {
				again++
			}
		}
		if again != 12 {
			t.Errorf("%d of the 12 retries got the first room after 30s: %v", again, order)
		}
	})
}

// A sample that was begun does not wait for idle permits.
func TestIdleWorkersMakeRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: func(a collector.Attempt) step {
			if a.N < 3 {
				return step{openErr: delayed(10 * time.Second)}
			}
			return step{takes: time.Second}
		}}
		c := setup(t, b, &shelf{atOnce: true}, adaptive(100))
		took := finish(t, c, tasks(1))
		counts(t, c, 1, 0, 0, 0)
		if took != 21*time.Second {
			t.Errorf("took %v, want two waits and the rollout: 21s", took)
		}
	})
}

func TestAdmissionWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: func(collector.Attempt) step { return step{takes: 10 * time.Second} }}
		var waits []time.Duration
		s := &shelf{atOnce: true}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Events.AttemptFinished = func(r collector.Result) { waits = append(waits, r.Admission) }
		})
		finish(t, c, tasks(3))
		want := []time.Duration{0, 10 * time.Second, 10 * time.Second}
		if st := c.Stats(); !slices.Equal(waits, want) || st.AdmissionWait != 20*time.Second {
			t.Errorf("waited %v, %v in all, want %v", waits, st.AdmissionWait, want)
		}
		for _, sample := range s.samples {
			if sample.Working != 10*time.Second || sample.Duration != 10*time.Second {
				t.Errorf("%s took %v, working %v: the wait for a takeover is in neither", sample.TaskID, sample.Duration, sample.Working)
			}
		}
	})
}

// Metrics of an engine change only the limit of its endpoint.
func TestEngineMetricsReachTheLimit(t *testing.T) {
	t.Parallel()
	c := setup(t, &scripted{}, &shelf{}, adaptive(100))
	c.Engine("another", limit.Engine{KVUsage: 0.95})
	if l := c.Stats().Endpoints[0].Limit; l != 32 {
		t.Errorf("limit %d, want 32: it was another endpoint's", l)
	}
	c.Engine("a", limit.Engine{KVUsage: 0.95})
	if e := c.Stats().Endpoints[0]; e.Limit != 25 || e.Engine.KVUsage != 0.95 || e.EngineSeen.IsZero() {
		t.Errorf("%+v, want a limit of 25 and the observed values", e)
	}
}

// Samples of open groups come first under a limit too: claims follow the order of the tasks.
func TestOrderAcrossEndpoints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := func(collector.Attempt) step { return step{takes: 7 * time.Second} }
		quick := func(collector.Attempt) step { return step{takes: 2 * time.Second} }
		a, b := &scripted{script: slow}, &scripted{script: quick}
		var mu sync.Mutex
		var order []string
		c := setup(t, a, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.Endpoints = []collector.Endpoint{{Name: "a", Backend: a, MaxInFlight: 40}, {Name: "b", Backend: b, MaxInFlight: 3}}
			cfg.Adaptive, cfg.Samples = true, 4
			cfg.Events.AttemptStarted = func(a collector.Attempt, _ string) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, a.Task.ID)
			}
		})
		finish(t, c, tasks(50))
		seen := make(map[string]int)
		for i, id := range order {
			seen[id]++
			// Samples of a task are not claimed long before the samples of the task before it.
			var n int
			fmt.Sscanf(id, "t%d", &n)
			if d := i - 4*n; d < -43 || d > 43 { // samples that are claimed at one moment begin in any order
				t.Fatalf("%s came as number %d", id, i)
			}
		}
		if len(seen) != 50 {
			t.Errorf("%d tasks", len(seen))
		}
	})
}

func TestWhatCutsTheLimit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err    error
		bad    int // number of the 40 samples that fail with it once, at the same moment
		reason string
	}{
		{collector.ErrBusy, 1, "rate_limited"},
		{collector.ErrUnavailable, 1, "unavailable"},
		{fmt.Errorf("%w: %w", collector.ErrConnection, syscall.ECONNREFUSED), 1, "connection"},
		{fmt.Errorf("%w: %w", collector.ErrConnection, syscall.ECONNRESET), 1, ""},
		{fmt.Errorf("%w: %w", collector.ErrConnection, syscall.ECONNRESET), 2, "connection"},
		{collector.ErrServer, 3, "overload"},
		{collector.ErrServer, 2, ""},
		{collector.ErrTimeout, 20, ""},
		{collector.ErrIdle, 20, ""},
		{collector.ErrRejected, 15, ""}, // 16 at the start would end the run
		{collector.ErrAgent, 20, ""},
		{errPlain, 15, ""},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%v/%d", tt.err, tt.bad), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &scripted{script: func(a collector.Attempt) step {
					var n int
					fmt.Sscanf(a.Task.ID, "t%d", &n)
					if n < tt.bad && a.N == 1 {
						return step{takes: time.Minute, runErr: tt.err}
					}
					return step{takes: 2 * time.Minute}
				}}
				var cuts []string
				c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
					adaptive(500)(cfg)
					cfg.Retries = 1
					cfg.Events.LimitChanged = func(_ string, from, to int, reason string) {
						if to < from {
							cuts = append(cuts, reason)
						}
					}
				})
				finish(t, c, tasks(40))
				if tt.reason == "" && len(cuts) > 0 || tt.reason != "" && !slices.Equal(cuts, []string{tt.reason}) {
					t.Errorf("cuts %q, want %q", cuts, tt.reason)
				}
			})
		})
	}
}
