package collector_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

// A server that answers everything except removals of agents costs a run one CloseTimeout, for any
// number of samples in any stage.
func TestRemovalsThatAreNotAnsweredAreWaitedForOnce(t *testing.T) {
	t.Parallel()
	for name, inFlight := range map[string]int{"one at a time": 1, "two": 2, "all": 6} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &scripted{script: func(a collector.Attempt) step {
					takes := 10 * time.Millisecond
					if inFlight == 6 { // the last one ends just before the first is given up
						takes = map[string]time.Duration{"t4": 29 * time.Second, "t5": 29900 * time.Millisecond}[a.Task.ID]
					}
					return step{takes: takes, closing: 24 * time.Hour}
				}}
				c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Endpoints[0].MaxInFlight = inFlight })
				began := time.Now()
				finish(t, c, tasks(6))
				if took := time.Since(began); took < 30*time.Second || took > 36*time.Second {
					t.Errorf("took %v", took)
				}
				st := counts(t, c, 6, 0, 0, 0)
				if st.CloseFailures != 6 || !st.Endpoints[0].Mute {
					t.Errorf("%d close failures, mute %v", st.CloseFailures, st.Endpoints[0].Mute)
				}
			})
		})
	}
}

// A server with slow or single lost removals does not become mute, and a server that was silent for
// a while gets longer removals again.
func TestSlowRemovalsGoOn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		inFlight int
		closing  func(n int) time.Duration // of the n-th agent
		left     int
	}{
		{"slow", 4, func(int) time.Duration { return 20 * time.Second }, 0},
		{"one is lost", 4, func(n int) time.Duration {
			if n == 2 {
				return time.Hour
			}
			return 2 * time.Second
		}, 1},
		{"silent, then slow", 1, func(n int) time.Duration {
			if n <= 2 {
				return time.Hour
			}
			return 4 * time.Second
		}, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n atomic.Int64
				b := &scripted{script: func(collector.Attempt) step {
					return step{takes: time.Second, closing: tt.closing(int(n.Add(1)))}
				}}
				c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Endpoints[0].MaxInFlight = tt.inFlight })
				finish(t, c, tasks(60))
				if st := c.Stats(); st.CloseFailures != tt.left || st.Endpoints[0].Mute {
					t.Errorf("%d close failures, want %d; mute %v", st.CloseFailures, tt.left, st.Endpoints[0].Mute)
				}
			})
		})
	}
}
