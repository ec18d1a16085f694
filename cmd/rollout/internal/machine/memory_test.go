package machine

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
	"time"
)

// While a run or a tap lasts, the process has a memory limit that follows the live heap, and a tap
// collects garbage more often. The user's own settings win. Not parallel, because the settings belong
// to the process.
func TestBounds(t *testing.T) {
	settings := func() (percent int, limit int64) {
		percent = debug.SetGCPercent(100)
		debug.SetGCPercent(percent)
		return percent, debug.SetMemoryLimit(-1)
	}
	percentBefore, _ := settings()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64)) // the test process can have a limit
	for name, tt := range map[string]struct {
		bound   func(context.Context)
		percent int
		least   int64
	}{
		"run": {func(ctx context.Context) { BoundMemory(ctx, 512) }, percentBefore, memoryBase + 512*memoryPerFlight},
		"tap": {BoundTapMemory, tapPercent, tapRoom},
	} {
		during := func() (percent int, limit int64) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				tt.bound(ctx)
			}()
			defer func() { cancel(); <-done }()
			for range 5000 {
				if percent, limit = settings(); limit != math.MaxInt64 {
					return percent, limit
				}
				select {
				case <-done: // it returned at once
					return settings()
				case <-time.After(time.Millisecond):
				}
			}
			return percent, limit
		}
		t.Setenv("GOGC", "")
		t.Setenv("GOMEMLIMIT", "")
		if percent, limit := during(); percent != tt.percent || limit < tt.least || limit == math.MaxInt64 {
			t.Errorf("%s: the percentage is %d, want %d; the limit is %d, want at least %d", name, percent, tt.percent, limit, tt.least)
		}
		for _, own := range []string{"", "GOGC", "GOMEMLIMIT"} {
			if own != "" {
				t.Setenv("GOGC", "")
				t.Setenv("GOMEMLIMIT", "")
				t.Setenv(own, "70")
				if percent, limit := during(); percent != percentBefore || limit != math.MaxInt64 {
					t.Errorf("%s: percentage %d and limit %d although %s is set", name, percent, limit, own)
				}
			}
			if percent, limit := settings(); percent != percentBefore || limit != math.MaxInt64 {
				t.Errorf("%s: percentage %d and limit %d afterwards", name, percent, limit)
			}
		}
	}
}
