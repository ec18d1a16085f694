package collector_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

// Memory follows the samples in flight: a MaxInFlight of ten million makes neither workers nor
// slots for them.
func TestGateMemoryFollowsTheWork(t *testing.T) {
	const bound, samples = 10_000_000, 6
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	had := runtime.NumGoroutine()
	goroutines := 0
	b := &scripted{script: func(collector.Attempt) step { return step{takes: 20 * time.Millisecond} }}
	c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
		cfg.Endpoints = []collector.Endpoint{{Name: "a", Backend: b, MaxInFlight: bound}, {Name: "b", Backend: b, MaxInFlight: bound}}
		cfg.Limit, cfg.Adaptive = samples, true
		cfg.Events.AttemptStarted = func(collector.Attempt, string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			goroutines = max(goroutines, runtime.NumGoroutine()-had)
		}
	})
	finish(t, c, tasks(1000))
	runtime.ReadMemStats(&now) // c is still alive
	counts(t, c, samples, 0, 0, 0)
	if goroutines > 4*samples+10 {
		t.Errorf("%d goroutines for %d samples", goroutines, samples)
	}
	if took := now.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("%d bytes were allocated for %d samples", took, samples)
	}
	runtime.KeepAlive(c)
}
