package collector_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/limit"
)

// A server that is down for a minute with all samples in flight costs no sample, although Retries
// is 0, and gets few requests meanwhile.
func TestServerDownForAMinute(t *testing.T) {
	t.Parallel()
	for _, adapt := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			down := func() bool { s := time.Since(start); return s >= 125*time.Second && s < 185*time.Second }
			tries := 0
			b := &scripted{}
			b.script = func(collector.Attempt) step {
				if down() {
					tries++
					return step{openErr: fmt.Errorf("dial: %w", collector.ErrConnection)}
				}
				if s := time.Since(start); s > 115*time.Second && s < 125*time.Second { // its end finds no server
					return step{takes: 125*time.Second - s, runErr: fmt.Errorf("read: %w", collector.ErrConnection)}
				}
				return step{takes: 10 * time.Second}
			}
			var log []string
			c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
				cfg.Endpoints[0].MaxInFlight, cfg.Adaptive = 16, adapt
				cfg.Retries = 0
				cfg.Events.EndpointDown = func(_ string, err error) {
					log = append(log, fmt.Sprintf("%v %v", err == nil, time.Since(start).Round(time.Second)))
				}
			})
			finish(t, c, each(600, func(i int) {
				if i%16 == 3 {
					time.Sleep(time.Second) // so that they are not in step
				}
			}))
			b.check(t)
			counts(t, c, 600, 0, 0, 0)
			if tries < 10 || tries > 14 {
				t.Errorf("tried %d times in a minute, want about every 5 s", tries)
			}
			if len(log) != 2 || log[0] != "false 2m5s" {
				t.Errorf("down and up: %v", log)
			}
			if len(log) == 2 && log[1] > "true 3m10s" {
				t.Errorf("down and up: %v: want it noticed within 5 s, and not at the end of a rollout", log)
			}
		})
	}
}

// Making an agent does not count as an answer if the engine behind a server is down. A server that
// can be checked is checked meanwhile.
func TestEngineDownIsNotAnsweredByAnAgent(t *testing.T) {
	t.Parallel()
	for _, checks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			down := func() bool { s := time.Since(start); return s >= time.Minute && s < 2*time.Minute }
			attempts := 0
			fails := step{takes: 100 * time.Millisecond, runErr: collector.ErrServer}
			plain := &scripted{script: func(collector.Attempt) step {
				if down() {
					attempts++
					return fails
				}
				return step{takes: 5 * time.Second}
			}}
			b, checker := collector.Backend(plain), &checked{scripted: plain}
			if checks {
				b, fails = checker, step{runErr: collector.ErrUnavailable}
				checker.check = func() error {
					if down() {
						return collector.ErrUnavailable
					}
					return nil
				}
			}
			var log []string
			c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
				cfg.Endpoints[0].MaxInFlight, cfg.Retries = 8, 1
				watched(cfg, &log)
			})
			finish(t, c, tasks(400))
			counts(t, c, 400, 0, 0, 0)
			if attempts > 8+8+12 || !slices.Equal(log, []string{"a down 1m0s", "a up 2m0s"}) {
				t.Errorf("checks %v: %d attempts while it was down: %v", checks, attempts, log)
			}
			if checks && checker.n < 5 {
				t.Errorf("%d checks in a minute", checker.n)
			}
		})
	}
}

// A long probe does not hold all other samples back.
func TestSlowProbeIsNotAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := &scripted{}
		b.script = func(collector.Attempt) step {
			switch s := time.Since(start); {
			case s < time.Minute:
				return step{takes: 10 * time.Second}
			case s < 70*time.Second:
				return step{runErr: collector.ErrServer}
			case s < 80*time.Second:
				return step{takes: 20 * time.Minute} // the first one after the outage is long
			}
			return step{takes: 10 * time.Second}
		}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Endpoints[0].MaxInFlight, cfg.Retries = 4, 2 })
		finish(t, c, tasks(100))
		counts(t, c, 100, 0, 0, 0)
		if took := time.Since(start); took > 22*time.Minute {
			t.Errorf("took %v: the others waited for the long one", took)
		}
	})
}

// A sample that always breaks its server fails within seconds and causes no outage.
func TestOneBadSampleFailsAfterAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: except("t5", step{takes: time.Second, runErr: collector.ErrServer}, step{takes: time.Second})}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Endpoints[0].MaxInFlight = 4 })
		finish(t, c, tasks(20))
		counts(t, c, 19, 1, 0, 0)
	})
}

// An outage is not a sign of load: the limit is cut once, at its start. When the server is back, it
// does not get all samples at once.
func TestLimitAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := &scripted{}
		b.script = func(collector.Attempt) step {
			if s := time.Since(start); s >= time.Minute && s < 3*time.Minute {
				return step{openErr: collector.ErrConnection}
			}
			return step{takes: 20 * time.Second}
		}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			adaptive(32)(cfg)
			cfg.Outage = 10 * time.Minute
		})
		var after []int
		go func() {
			time.Sleep(3*time.Minute + 5*time.Second) // the next probe was admitted
			for range 3 {
				time.Sleep(5 * time.Second)
				b.mu.Lock()
				after = append(after, b.inFlight)
				b.mu.Unlock()
			}
			if l := c.Stats().Endpoints[0].Limit; l != 25 {
				t.Errorf("limit %d after the outage, want 25", l)
			}
		}()
		finish(t, c, tasks(600))
		counts(t, c, 600, 0, 0, 0)
		for i, n := range after {
			if n < 3 || n > 3*(i+3) {
				t.Errorf("in flight every 5 s after the server was back: %v, want about 3 more each time", after)
				break
			}
		}
	})
}

// Idle workers claim no sample while the server is down.
func TestIdleWorkersWaitWhileDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tries := 0
		b := &scripted{script: func(collector.Attempt) step {
			if s := time.Since(start); s >= time.Minute && s < 2*time.Minute {
				tries++
				return step{openErr: collector.ErrConnection}
			}
			return step{takes: time.Second}
		}}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Endpoints[0].MaxInFlight, cfg.Retries = 20, 3 })
		finish(t, c, each(30, func(i int) {
			switch i {
			case 3:
				time.Sleep(time.Minute) // 17 workers are idle, and the others soon
			case 6:
				time.Sleep(time.Second) // these three took it down
			}
		}))
		counts(t, c, 30, 0, 0, 0)
		if tries > 3+12 {
			t.Errorf("tried %d times in a minute of outage", tries)
		}
	})
}

// A lower limit applies to workers that have a permit but no sample yet.
func TestCutHoldsForIdleWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: func(collector.Attempt) step { return step{takes: time.Minute} }}
		c := setup(t, b, &shelf{atOnce: true}, adaptive(32))
		finish(t, c, each(40, func(i int) {
			if i == 0 {
				time.Sleep(time.Second)
				c.Engine("a", limit.Engine{KVUsage: 0.95})
			}
		}))
		if b.most != 25 {
			t.Errorf("at most %d in flight, want 25", b.most)
		}
	})
}
