package collector_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/limit"
)

// A server that is down for a minute with all samples in flight costs no sample, although Retries
// is 0, and gets few requests meanwhile.
func TestServerDownForAMinute(t *testing.T) {
	bothWays(t, func(r *rig, adapt bool) {
		start := time.Now()
		const goes, back = 125 * time.Second, 185 * time.Second
		tries := 0
		r.b.script = func(collector.Attempt) step {
			switch s := time.Since(start); {
			case s >= goes && s < back:
				tries++
				return step{openErr: fmt.Errorf("dial: %w", collector.ErrConnection)}
			case s > goes-10*time.Second && s < goes: // its end finds no server
				return step{takes: goes - s, runErr: fmt.Errorf("read: %w", collector.ErrConnection)}
			}
			return step{takes: 10 * time.Second}
		}
		r.room(16)
		r.cfg.Adaptive = adapt
		var log []time.Duration
		r.cfg.Events.EndpointDown = func(_ string, err error) {
			is(r, "up", err == nil, len(log) == 1)
			log = append(log, time.Since(start))
		}
		r.finish(each(600, func(i int) {
			if i%16 == 3 {
				time.Sleep(time.Second) // so that they are not in step
			}
		}))
		r.counts(600, 0, 0, 0)
		within(r, "requests in a minute", tries, 10, 14) // about every 5 s
		if len(log) != 2 {
			r.Fatalf("down and up: %v", log)
		}
		within(r, "down", log[0], goes, goes+time.Second/2)
		within(r, "up", log[1], back, back+5*time.Second) // not only at the end of a rollout
	})
}

// Making an agent does not count as an answer if the engine behind a server is down. A server that
// can be checked is checked meanwhile.
func TestEngineDownIsNotAnsweredByAnAgent(t *testing.T) {
	bothWays(t, func(r *rig, checks bool) {
		start := time.Now()
		down := func() bool { s := time.Since(start); return s >= time.Minute && s < 2*time.Minute }
		attempts := 0
		fails := step{takes: 100 * time.Millisecond, runErr: collector.ErrServer}
		r.b.script = func(collector.Attempt) step {
			if down() {
				attempts++
				return fails
			}
			return step{takes: 5 * time.Second}
		}
		var checker *checked
		if checks {
			fails = step{runErr: collector.ErrUnavailable}
			checker = r.checked(func() error {
				if down() {
					return collector.ErrUnavailable
				}
				return nil
			})
		}
		r.room(8)
		r.cfg.Retries = 1
		log := r.watch()
		r.finish(tasks(400)).counts(400, 0, 0, 0)
		same(r, "events", *log, "a down 1m0s", "a up 2m0s")
		within(r, "attempts while it was down", attempts, 0, 8+8+12)
		if checks {
			within(r, "checks in a minute", checker.n, 5, 100)
		}
	})
}

// A long probe does not hold all other samples back.
func TestSlowProbeIsNotAlone(t *testing.T) {
	bubble(t, func(r *rig) {
		start := time.Now()
		r.b.script = func(collector.Attempt) step {
			switch s := time.Since(start); {
			case s >= time.Minute && s < 70*time.Second:
				return step{runErr: collector.ErrServer}
			case s >= 70*time.Second && s < 80*time.Second:
				return step{takes: 20 * time.Minute} // the first one after the outage is long
			}
			return step{takes: 10 * time.Second}
		}
		r.room(4)
		r.cfg.Retries = 2
		r.finish(tasks(100)).counts(100, 0, 0, 0)
		within(r, "time", r.took, 0, 22*time.Minute) // the others do not wait for the long one
	})
}

// An outage is not a sign of load: the limit is cut once, at its start. When the server is back, it
// does not get all samples at once.
func TestLimitAfterAnOutage(t *testing.T) {
	bubble(t, func(r *rig) {
		start := time.Now()
		r.b.script = func(collector.Attempt) step {
			if s := time.Since(start); s >= time.Minute && s < 3*time.Minute {
				return step{openErr: collector.ErrConnection}
			}
			return step{takes: 20 * time.Second}
		}
		r.adaptive(32)
		r.cfg.Outage = 10 * time.Minute
		c := r.build()
		go func() {
			time.Sleep(3*time.Minute + 5*time.Second) // the next probe was admitted
			for i := range 3 {
				time.Sleep(5 * time.Second)
				r.b.mu.Lock()
				within(r, "in flight soon after the outage", r.b.inFlight, 3, 3*(i+3)) // about 3 more each time
				r.b.mu.Unlock()
			}
			is(r, "limit after the outage", c.Stats().Endpoints[0].Limit, 25)
		}()
		r.finish(tasks(600)).counts(600, 0, 0, 0)
	})
}

// Idle workers claim no sample while the server is down.
func TestIdleWorkersWaitWhileDown(t *testing.T) {
	bubble(t, func(r *rig) {
		start := time.Now()
		tries := 0
		r.b.script = func(collector.Attempt) step {
			if s := time.Since(start); s >= time.Minute && s < 2*time.Minute {
				tries++
				return step{openErr: collector.ErrConnection}
			}
			return step{takes: time.Second}
		}
		r.room(20)
		r.cfg.Retries = 3
		r.finish(each(30, func(i int) {
			switch i {
			case 3:
				time.Sleep(time.Minute) // 17 workers are idle, and the others soon
			case 6:
				time.Sleep(time.Second) // these three took it down
			}
		}))
		r.counts(30, 0, 0, 0)
		within(r, "requests in a minute of outage", tries, 0, 3+12)
	})
}

// A lower limit applies to workers that have a permit but no sample yet.
func TestCutHoldsForIdleWorkers(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = always(step{takes: time.Minute})
		r.adaptive(32)
		c := r.build()
		r.finish(each(40, func(i int) {
			if i == 0 {
				time.Sleep(time.Second)
				c.Engine("a", limit.Engine{KVUsage: 0.95})
			}
		}))
		is(r, "most in flight", r.b.most, 25)
	})
}
