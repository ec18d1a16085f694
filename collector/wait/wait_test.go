package wait_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector/wait"
)

// The time, the context and each channel end the wait, and only the time returns true.
func TestFor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		end  int // index of the event that comes after a second: 0 is the context; -1: none
	}{{"time", -1}, {"context", 0}, {"first", 1}, {"second", 2}, {"third", 3}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ends := []chan struct{}{make(chan struct{}), make(chan struct{}), make(chan struct{})}
				time.AfterFunc(time.Second, func() {
					switch {
					case test.end == 0:
						cancel()
					case test.end > 0:
						close(ends[test.end-1])
					}
				})
				start, want := time.Now(), time.Minute
				if test.end >= 0 {
					want = time.Second
				}
				if full := wait.For(ctx, time.Minute, ends[0], ends[1], ends[2]); full != (test.end < 0) || time.Since(start) != want {
					t.Errorf("%v after %v, want %v", full, time.Since(start), want)
				}
			})
		})
	}
}
