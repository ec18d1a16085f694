package collector_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

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

// Samples that always fail do not cause an outage: they fail after their retries while the server
// passes checks, and wait while it does not.
func TestPoisonDoesNotTripBreaker(t *testing.T) {
	t.Parallel()
	const poison = 5
	for name, good := range map[string]int{"with others": 20, "alone": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &checked{check: func() error { return nil }, scripted: &scripted{script: func(a collector.Attempt) step {
					if i := strings.TrimPrefix(a.Task.ID, "t"); len(i) == 1 && i[0] < '0'+poison {
						return step{runErr: collector.ErrUnavailable}
					}
					return step{takes: time.Second}
				}}}
				s := &shelf{atOnce: true}
				var log []string
				c := setup(t, b, s, func(cfg *collector.Config) {
					cfg.Endpoints[0].MaxInFlight, cfg.Retries = 8, 2
					watched(cfg, &log)
				})
				if err := c.Run(t.Context(), tasks(poison+good)); err != nil {
					t.Fatalf("Run = %v after %v", err, log)
				}
				counts(t, c.Stats(), good, poison, 0, 0)
				if n := c.Stats().Attempts; n > good+poison*5 {
					t.Errorf("%d attempts", n)
				}
				if b.n == 0 || b.n > 3 {
					t.Errorf("%d checks", b.n)
				}
				if log != nil {
					t.Errorf("events %v", log)
				}
			})
		})
	}
}

func TestOutageFailsChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		down := func() bool { now := time.Since(start); return now >= 2*time.Minute && now < 3*time.Minute }
		b := &checked{
			check: func() error {
				if down() {
					return collector.ErrUnavailable
				}
				return nil
			},
			scripted: &scripted{script: func(collector.Attempt) step {
				if down() {
					return step{runErr: collector.ErrUnavailable}
				}
				return step{takes: 10 * time.Second}
			}},
		}
		var log []string
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.Endpoints[0].MaxInFlight = 8
			watched(cfg, &log)
		})
		if err := c.Run(t.Context(), tasks(200)); err != nil {
			t.Fatal(err)
		}
		counts(t, c.Stats(), 200, 0, 0, 0)
		if len(log) != 2 || log[0] != "a down 2m0s" || log[1] != "a up 3m0s" {
			t.Errorf("events %v", log)
		}
		if b.n < 5 {
			t.Errorf("%d checks in a minute", b.n)
		}
	})
}
