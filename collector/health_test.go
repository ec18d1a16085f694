package collector_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

// watch logs the events of endpoints.
func (r *rig) watch() *[]string {
	log, start := new([]string), time.Now()
	add := func(name, what string) {
		*log = append(*log, fmt.Sprintf("%s %s %v", name, what, time.Since(start).Round(time.Minute)))
	}
	r.cfg.Events.EndpointDown = func(name string, err error) {
		if err == nil {
			add(name, "up")
		} else {
			add(name, "down")
		}
	}
	r.cfg.Events.EndpointLost = func(name string, _ error) { add(name, "lost") }
	return log
}

func TestServerThatNeverAnswersEndsTheRun(t *testing.T) {
	bubbles(t, map[string]int{"one": 1, "eight": 8}, func(r *rig, inFlight int) {
		r.b.script = always(step{openErr: collector.ErrConnection})
		r.room(inFlight)
		r.cfg.Planned = 1000
		log := r.watch()
		r.fails(r.Context(), tasks(1000), collector.ErrUnavailable, collector.ErrConnection)
		within(r, "time", r.took, 0, 5*time.Second)
		r.counts(0, 0, 0, 1000)
		is(r, "samples with the sink", len(r.s.samples), 0)
		same(r, "events", *log, "a down 0s", "a lost 0s")
	})
}

// Samples wait for a server whose engine dies after the trial call, although no sample has had an
// answer yet.
func TestOutageBeforeTheFirstSample(t *testing.T) {
	bothWays(t, func(r *rig, answered bool) {
		start := time.Now()
		r.b.script = func(collector.Attempt) step {
			if time.Since(start) < time.Minute {
				return step{runErr: collector.ErrUnavailable}
			}
			return step{takes: 10 * time.Second}
		}
		r.room(4)
		r.cfg.Retries, r.cfg.Outage, r.cfg.Planned = 3, 2*time.Minute, 20
		if answered {
			r.build().Answered("a")
			r.finish(tasks(20)).counts(20, 0, 0, 0)
		} else {
			r.fails(r.Context(), tasks(20), collector.ErrUnavailable)
			is(r, "failed", r.c.Stats().Failed, 0)
		}
	})
}

func TestLongOutageEndsTheRun(t *testing.T) {
	bubble(t, func(r *rig) {
		start := time.Now()
		r.b.script = func(collector.Attempt) step {
			if time.Since(start) >= 2*time.Minute {
				return step{runErr: collector.ErrServer}
			}
			return step{takes: 10 * time.Second}
		}
		r.room(4)
		r.cfg.Retries, r.cfg.Outage, r.cfg.Planned = 5, 3*time.Minute, 1000
		log := r.watch()
		r.fails(r.Context(), tasks(1000), collector.ErrUnavailable).counts(48, 0, 0, 952)
		same(r, "events", *log, "a down 2m0s", "a lost 5m0s")
	})
}

// Samples that always fail, or whose rollouts are too long, fail and do not end the run, with any
// number of workers.
func TestSamplesThatAlwaysFailAreNoOutage(t *testing.T) {
	type failing struct {
		bad      int // number of bad tasks, from the first
		step     step
		inFlight int
		class    collector.Class
	}
	const second = time.Second
	broken, server, late := collector.ErrServer, collector.ClassServerError, collector.ClassTimeoutTotal
	bubbles(t, map[string]failing{
		"one sample":                  {1, step{takes: 120 * second, runErr: broken}, 1, server},
		"one of four workers":         {1, step{takes: second, runErr: broken}, 4, server},
		"long rollouts, one worker":   {3, step{hang: true}, 1, late},
		"long rollouts, four workers": {4, step{hang: true}, 4, late},
	}, func(r *rig, tt failing) {
		r.b.script = func(a collector.Attempt) step {
			if a.Task.ID == "good" {
				return step{}
			}
			return tt.step
		}
		r.room(tt.inFlight)
		r.cfg.Retries, r.cfg.AttemptTimeout = 5, 10*time.Minute
		log := r.watch()
		// The server answers once before, so that it is known to be up.
		r.finish(func(yield func(*collector.Task, error) bool) {
			if yield(task("good"), nil) {
				time.Sleep(time.Minute)
				tasks(tt.bad)(yield)
			}
		})
		st := r.counts(1, tt.bad, 0, 0)
		same(r, "of the class, retries", []int{st.ByClass[tt.class], st.Retries}, tt.bad, 5*tt.bad)
		same(r, "events", *log)
	})
}

// The samples of a lost endpoint continue at the others. Its workers claim no more samples, not even
// idle ones.
func TestLostEndpoint(t *testing.T) {
	bubble(t, func(r *rig) {
		var lostAt atomic.Int64 // 0: not lost
		var before, after atomic.Int64
		r.b.script = func(collector.Attempt) step {
			// An attempt that another worker began when the endpoint was lost has the same time.
			if at := lostAt.Load(); at != 0 && time.Now().UnixNano() > at {
				after.Add(1)
			} else {
				before.Add(1)
			}
			return step{openErr: collector.ErrConnection}
		}
		r.servers(1, r.b, &scripted{script: always(step{takes: time.Second})})
		r.room(8)
		log := r.watch()
		lost := r.cfg.Events.EndpointLost
		r.cfg.Events.EndpointLost = func(name string, err error) {
			lost(name, err)
			lostAt.Store(time.Now().UnixNano())
		}
		// The dead endpoint gets three of the first four samples. Five of its workers are idle when
		// it is lost.
		r.finish(each(40, func(i int) {
			if i == 4 {
				time.Sleep(10 * time.Minute)
			}
		}))
		st := r.counts(40, 0, 0, 0)
		is(r, "claimed", st.Claimed, 40)
		same(r, "lost", []bool{st.Endpoints[0].Lost, st.Endpoints[1].Lost}, true, false)
		same(r, "events", *log, "a down 0s", "a lost 0s")
		within(r, "attempts until it was lost", before.Load(), 8, 1<<20)
		is(r, "attempts afterwards", after.Load(), 0)
	})
}

// A checked backend implements Checker.
type checked struct {
	*scripted
	check func() error
	n     int
}

func (b *checked) Check(context.Context, string) error {
	b.mu.Lock()
	b.n++
	b.mu.Unlock()
	return b.check()
}

// checked lets the backend of the rig be checked.
func (r *rig) checked(check func() error) *checked {
	b := &checked{scripted: r.b, check: check}
	r.cfg.Endpoints[0].Backend = b
	return b
}

// Samples that always fail do not cause an outage: they fail after their retries while the server
// passes checks, and wait while it does not.
func TestPoisonDoesNotTripBreaker(t *testing.T) {
	const poison = 5
	bubbles(t, map[string]int{"with others": 20, "alone": 0}, func(r *rig, good int) {
		r.b.script = func(a collector.Attempt) step {
			if i := strings.TrimPrefix(a.Task.ID, "t"); len(i) == 1 && i[0] < '0'+poison {
				return step{runErr: collector.ErrUnavailable}
			}
			return step{takes: time.Second}
		}
		b := r.checked(func() error { return nil })
		r.room(8)
		r.cfg.Retries = 2
		log := r.watch()
		st := r.finish(tasks(poison+good)).counts(good, poison, 0, 0)
		within(r, "attempts", st.Attempts, 0, good+poison*5)
		within(r, "checks", b.n, 1, 3)
		same(r, "events", *log)
	})
}

// If a server refuses only some samples, they fail within a minute or two and cost the others
// neither time nor room. This includes the last and the only samples.
func TestSamplesThatAreAlwaysTurnedAway(t *testing.T) {
	type refused struct {
		n   int
		bad []string
	}
	bubbles(t, map[string]refused{
		"one among many": {300, []string{"t5"}},
		"several":        {300, []string{"t5", "t6", "t7", "t100"}},
		"the last":       {300, []string{"t299"}},
		"the last ones":  {300, []string{"t297", "t298", "t299"}},
		"nothing else":   {2, []string{"t0", "t1"}},
	}, func(r *rig, tt refused) {
		r.b.script = func(a collector.Attempt) step {
			if slices.Contains(tt.bad, a.Task.ID) {
				return step{openErr: delayed(time.Second)}
			}
			return step{takes: 10 * time.Second}
		}
		b := r.checked(func() error { return nil })
		lowest := 16
		r.room(16)
		r.cfg.Adaptive, r.cfg.Retries = true, 2
		r.cfg.Events.LimitChanged = func(_ string, _, to int, _ string) { lowest = min(lowest, to) }
		r.finish(tasks(tt.n))
		bad := len(tt.bad)
		st := r.counts(tt.n-bad, bad, 0, 0)
		is(r, "rate limited", st.ByClass[collector.ClassRateLimited], bad)
		within(r, "time", r.took, 0, 6*time.Minute) // 190 s without them
		if tt.n > 10 {
			within(r, "the lowest limit", lowest, 7, 16)
		}
		within(r, "attempts", st.Attempts, 0, tt.n+10*bad)
		within(r, "checks", b.n, 0, 6*bad)
	})
}

// A busy server, which refuses many samples several times, fails none.
func TestBusyServerFailsNoSample(t *testing.T) {
	bubble(t, func(r *rig) {
		var busy load
		r.checked(func() error {
			defer busy.add(-1)
			if busy.add(1) > 3 {
				return delayed(time.Second)
			}
			return nil
		})
		r.b.script = func(collector.Attempt) step {
			if busy.add(1) > 3 {
				busy.add(-1)
				return step{openErr: delayed(time.Second)}
			}
			time.AfterFunc(time.Minute, func() { busy.add(-1) })
			return step{takes: time.Minute}
		}
		r.room(16)
		r.cfg.Retries = 2
		r.finish(tasks(80)).counts(80, 0, 0, 0)
	})
}
