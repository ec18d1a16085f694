package collector_test

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/limit"
)

// adaptive makes the endpoint adapt its limit, up to most.
func (r *rig) adaptive(most int) {
	r.room(most)
	r.cfg.Adaptive = true
}

// A load counts the current requests at a server.
type load struct {
	mu  sync.Mutex
	now int
}

func (l *load) add(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now += n
	return l.now
}

// The limit falls to the capacity of a server that refuses requests above 20 for 89 s each. No
// sample is lost, and nothing freezes.
func TestLimitFollowsAServerThatTurnsAway(t *testing.T) {
	bubble(t, func(r *rig) {
		var busy load
		r.b.script = func(collector.Attempt) step {
			if busy.add(1) > 20 {
				busy.add(-1)
				return step{openErr: delayed(89 * time.Second)}
			}
			time.AfterFunc(10*time.Second, func() { busy.add(-1) })
			return step{takes: 10 * time.Second}
		}
		limits := []int{32}
		r.adaptive(256)
		r.cfg.Events.LimitChanged = func(endpoint string, from, to int, reason string) {
			if endpoint != "a" || from != limits[len(limits)-1] || from == to {
				r.Errorf("%s: %d → %d (%s) after %v", endpoint, from, to, reason, limits)
			}
			limits = append(limits, to)
		}
		r.finish(tasks(4000))
		last := r.counts(4000, 0, 0, 0).Endpoints[0].Limit
		within(r, "limit", last, 10, 26)
		within(r, "limits", len(limits), 3, 4000)
		is(r, "the last limit", limits[len(limits)-1], last)
		within(r, "time", r.took, 0, 3000*time.Second) // with 20 samples in flight: 2000 s
	})
}

// The limit does not grow to its maximum on one Letta process, which makes 5 rollouts per second at
// any load.
func TestLimitStaysWhereThroughputIsFlat(t *testing.T) {
	bubble(t, func(r *rig) {
		var mu sync.Mutex
		free := time.Now()
		r.b.script = func(collector.Attempt) step {
			mu.Lock()
			defer mu.Unlock()
			if now := time.Now(); free.Before(now) {
				free = now
			}
			free = free.Add(200 * time.Millisecond)
			return step{takes: time.Until(free)}
		}
		r.adaptive(512)
		r.finish(tasks(10000))
		within(r, "most in flight", r.b.most, 0, 64)
		within(r, "limit", r.c.Stats().Endpoints[0].Limit, 0, 40)
	})
}

// A sample that waits for its retry gives its permit to other samples, and it comes before fresh
// samples when its retry is due.
func TestRetryReleasesPermit(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = func(a collector.Attempt) step {
			if a.N == 1 && a.Task.ID < "t2" { // t0, t1 and t10 to t19
				return step{openErr: delayed(30 * time.Second)}
			}
			return step{takes: 20 * time.Second}
		}
		var mu sync.Mutex
		again := 0
		start := time.Now()
		r.adaptive(200)
		// At 30 s the 12 are due. Room for 25 comes at 40 s, and goes to them first.
		r.cfg.Events.AttemptStarted = func(a collector.Attempt, _ string) {
			mu.Lock()
			defer mu.Unlock()
			if d := time.Since(start); a.N == 2 && d >= 30*time.Second && d < 42*time.Second {
				again++
			}
		}
		c := r.build()
		go func() {
			time.Sleep(10 * time.Second)
			// One refusal cut the limit from 32 to 25; 12 samples wait and 25 are in flight.
			e := c.Stats().Endpoints[0]
			same(r, "limit, waiting, max", []int{e.Limit, e.Waiting, e.Max}, 25, 12, 200)
			within(r, "at work", e.InFlight-e.Waiting, 25, 32)
		}()
		r.finish(tasks(90)).counts(90, 0, 0, 0)
		is(r, "retries that got the first room after 30s", again, 12)
	})
}

// A sample that was begun does not wait for idle permits.
func TestIdleWorkersMakeRoom(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = func(a collector.Attempt) step {
			if a.N < 3 {
				return step{openErr: delayed(10 * time.Second)}
			}
			return step{takes: time.Second}
		}
		r.adaptive(100)
		r.finish(tasks(1)).counts(1, 0, 0, 0)
		is(r, "time of two waits and the rollout", r.took, 21*time.Second)
	})
}

func TestAdmissionWait(t *testing.T) {
	bubble(t, func(r *rig) {
		const takes = 10 * time.Second
		r.b.script = always(step{takes: takes})
		var waits []time.Duration
		r.cfg.Events.AttemptFinished = func(r collector.Result) { waits = append(waits, r.Admission) }
		r.finish(tasks(3))
		same(r, "waits", waits, 0, takes, takes)
		is(r, "all waits", r.c.Stats().AdmissionWait, 2*takes)
		for _, sample := range r.s.samples { // the wait for a takeover is in neither
			same(r, "working, duration", []time.Duration{sample.Working, sample.Duration}, takes, takes)
		}
	})
}

// Metrics of an engine change only the limit of its endpoint.
func TestEngineMetricsReachTheLimit(t *testing.T) {
	bubble(t, func(r *rig) {
		r.adaptive(100)
		c := r.build()
		c.Engine("another", limit.Engine{KVUsage: 0.95})
		is(r, "limit after another's metrics", c.Stats().Endpoints[0].Limit, 32)
		c.Engine("a", limit.Engine{KVUsage: 0.95})
		if e := c.Stats().Endpoints[0]; e.Limit != 25 || e.Engine.KVUsage != 0.95 || e.EngineSeen.IsZero() {
			r.Errorf("%+v, want a limit of 25 and the observed values", e)
		}
	})
}

// Samples of open groups come first under a limit too: claims follow the order of the tasks.
func TestOrderAcrossEndpoints(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = always(step{takes: 7 * time.Second})
		r.servers(3, r.b, &scripted{script: always(step{takes: 2 * time.Second})})
		r.adaptive(40)
		r.cfg.Samples = 4
		var mu sync.Mutex
		at := 0
		seen := make(map[string]int)
		r.cfg.Events.AttemptStarted = func(a collector.Attempt, _ string) {
			mu.Lock()
			defer mu.Unlock()
			// Samples of a task are not claimed long before the samples of the task before it. Samples
			// that are claimed at one moment begin in any order.
			within(r, "attempts out of place before "+a.Task.ID, at-4*number(a), -43, 43)
			at++
			seen[a.Task.ID]++
		}
		r.finish(tasks(50))
		is(r, "tasks", len(seen), 50)
	})
}

func TestWhatCutsTheLimit(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("%w: %w", collector.ErrConnection, syscall.ECONNREFUSED)
	reset := fmt.Errorf("%w: %w", collector.ErrConnection, syscall.ECONNRESET)
	for _, tt := range []struct {
		err    error
		bad    int // number of the 40 samples that fail with it once, at the same moment
		reason string
	}{
		{collector.ErrBusy, 1, "rate_limited"},
		{collector.ErrUnavailable, 1, "unavailable"},
		{refused, 1, "connection"},
		{reset, 1, ""},
		{reset, 2, "connection"},
		{collector.ErrServer, 3, "overload"},
		{collector.ErrServer, 2, ""},
		{collector.ErrTimeout, 20, ""},
		{collector.ErrIdle, 20, ""},
		{collector.ErrRejected, 15, ""}, // 16 at the start would end the run
		{collector.ErrAgent, 20, ""},
		{errPlain, 15, ""},
	} {
		t.Run(fmt.Sprintf("%v/%d", tt.err, tt.bad), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.b.script = func(a collector.Attempt) step {
					if number(a) < tt.bad && a.N == 1 {
						return step{takes: time.Minute, runErr: tt.err}
					}
					return step{takes: 2 * time.Minute}
				}
				var cuts []string
				r.adaptive(500)
				r.cfg.Retries = 1
				r.cfg.Events.LimitChanged = func(_ string, from, to int, reason string) {
					if to < from {
						cuts = append(cuts, reason)
					}
				}
				r.finish(tasks(40))
				is(r, "cuts", strings.Join(cuts, ", "), tt.reason)
			})
		})
	}
}
