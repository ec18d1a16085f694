package collector_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

// If a server refuses only some samples, they fail within a minute or two and cost the others
// neither time nor room. This includes the last and the only samples.
func TestSamplesThatAreAlwaysTurnedAway(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		n    int
		bad  []string
	}{
		{"one among many", 300, []string{"t5"}},
		{"several", 300, []string{"t5", "t6", "t7", "t100"}},
		{"the last", 300, []string{"t299"}},
		{"the last ones", 300, []string{"t297", "t298", "t299"}},
		{"nothing else", 2, []string{"t0", "t1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &checked{check: func() error { return nil }, scripted: &scripted{script: func(a collector.Attempt) step {
					if slices.Contains(tt.bad, a.Task.ID) {
						return step{openErr: delayed(time.Second)}
					}
					return step{takes: 10 * time.Second}
				}}}
				lowest := 16
				c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
					cfg.Endpoints[0].MaxInFlight, cfg.Adaptive, cfg.Retries = 16, true, 2
					cfg.Events.LimitChanged = func(_ string, _, to int, _ string) { lowest = min(lowest, to) }
				})
				took := finish(t, c, tasks(tt.n))
				st := counts(t, c, tt.n-len(tt.bad), len(tt.bad), 0, 0)
				if st.ByClass[collector.ClassRateLimited] != len(tt.bad) {
					t.Errorf("by class %v", st.ByClass)
				}
				if took > 6*time.Minute { // 190 s without them
					t.Errorf("took %v", took)
				}
				if tt.n > 10 && lowest < 7 {
					t.Errorf("the limit fell to %d", lowest)
				}
				if st.Attempts > tt.n+len(tt.bad)*10 || b.n > 6*len(tt.bad) {
					t.Errorf("%d attempts at %d samples, %d checks", st.Attempts, tt.n, b.n)
				}
			})
		})
	}
}

// A busy server, which refuses many samples several times, fails none.
func TestBusyServerFailsNoSample(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var busy load
		b := &checked{scripted: &scripted{}}
		b.check = func() error {
			defer busy.add(-1)
			if busy.add(1) > 3 {
				return delayed(time.Second)
			}
			return nil
		}
		b.script = func(collector.Attempt) step {
			if busy.add(1) > 3 {
				busy.add(-1)
				return step{openErr: delayed(time.Second)}
			}
			time.AfterFunc(time.Minute, func() { busy.add(-1) })
			return step{takes: time.Minute}
		}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Endpoints[0].MaxInFlight, cfg.Retries = 16, 2 })
		finish(t, c, tasks(80))
		if st := c.Stats(); st.Committed != 80 {
			t.Errorf("%s", fmt.Sprint(st.Committed, st.Failed, st.ByClass))
		}
	})
}
