package machine

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
	"time"
)

// The limit is there while a run is, follows what is alive, and a person's own
// setting wins. Not parallel: the limit is the process's.
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

// The heap grows less while a tap works, and a person's own setting wins. Not parallel: it is
// the process's.
func TestCollectOften(t *testing.T) {
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	before := percent()
	t.Setenv("GOGC", "")
	stop := CollectOften()
	if got := percent(); got != oftenPercent {
		t.Errorf("the percentage is %d, want %d", got, oftenPercent)
	}
	stop()
	if got := percent(); got != before {
		t.Errorf("the percentage is %d afterwards, want %d", got, before)
	}
	t.Setenv("GOGC", "70")
	defer CollectOften()()
	if got := percent(); got != before {
		t.Errorf("the percentage is %d although GOGC is set, want it left alone", got)
	}
}
