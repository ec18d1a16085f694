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
				counts(t, c, good, poison, 0, 0)
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
