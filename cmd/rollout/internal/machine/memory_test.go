package machine

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
	"time"
)

// The memory limit exists while a run collects and follows the live heap. The user's own setting
// wins. Not parallel, because the limit belongs to the process.
func TestBoundMemory(t *testing.T) {
	during := func() int64 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			BoundMemory(ctx, 512)
		}()
		limit := int64(math.MaxInt64)
		for range 1000 {
			if limit = debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
				break
			}
			select {
			case <-done: // it returned at once
				cancel()
				return debug.SetMemoryLimit(-1)
			case <-time.After(time.Millisecond):
			}
		}
		cancel()
		<-done
		return limit
	}
	t.Setenv("GOMEMLIMIT", "")
	t.Setenv("GOGC", "")
	if got, least := during(), int64(memoryBase+512*memoryPerFlight); got < least || got == math.MaxInt64 {
		t.Errorf("limit = %d, want at least %d", got, least)
	}
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("limit = %d after the run, want none", got)
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	if got := during(); got != math.MaxInt64 {
		t.Errorf("limit = %d although GOMEMLIMIT is set, want it left alone", got)
	}
}

// A tap collects garbage more often and has a memory limit until it ends. The user's own settings
// win. Not parallel, because the settings belong to the process.
func TestBoundTapMemory(t *testing.T) {
	settings := func() (percent int, limit int64) {
		percent = debug.SetGCPercent(100)
		debug.SetGCPercent(percent)
		return percent, debug.SetMemoryLimit(-1)
	}
	percentBefore, limitBefore := settings()
	during := func() (percent int, limit int64) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			BoundTapMemory(ctx)
		}()
		defer func() { cancel(); <-done }()
		for range 5000 {
			if percent, limit = settings(); limit != limitBefore {
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
	if percent, limit := during(); percent != tapPercent || limit < tapRoom || limit == limitBefore {
		t.Errorf("the percentage is %d, want %d; the limit is %d, want more than %d", percent, tapPercent, limit, int64(tapRoom))
	}
	for _, name := range []string{"", "GOGC", "GOMEMLIMIT"} {
		if name != "" {
			t.Setenv("GOGC", "")
			t.Setenv("GOMEMLIMIT", "")
			t.Setenv(name, "70")
			during()
		}
		if percent, limit := settings(); percent != percentBefore || limit != limitBefore {
			t.Errorf("%s: percentage %d and limit %d afterwards, want %d and %d", name, percent, limit, percentBefore, limitBefore)
		}
	}
}
