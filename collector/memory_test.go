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
	r := newRig(t)
	r.b.script = always(step{takes: 20 * time.Millisecond})
	r.servers(bound, r.b, r.b)
	r.cfg.Limit, r.cfg.Adaptive = samples, true
	r.cfg.Events.AttemptStarted = func(collector.Attempt, string) {
		r.b.mu.Lock()
		defer r.b.mu.Unlock()
		goroutines = max(goroutines, runtime.NumGoroutine()-had)
	}
	r.finish(tasks(1000))
	runtime.ReadMemStats(&now) // the collector is still alive
	r.counts(samples, 0, 0, 0)
	if goroutines > 4*samples+10 {
		t.Errorf("%d goroutines for %d samples", goroutines, samples)
	}
	if took := now.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("%d bytes were allocated for %d samples", took, samples)
	}
	runtime.KeepAlive(r)
}

// The survey stores little more than one byte per sample.
func TestSurveyMemory(t *testing.T) {
	const groups, samples, bound = 20_000, 16, 4
	var before, most runtime.MemStats
	n := 0
	r := newRig(t)
	r.cfg.Samples = samples
	r.cfg.Left = func(string) collector.SampleState {
		n++
		switch n {
		case 1:
			runtime.GC()
			runtime.ReadMemStats(&before)
		case groups * samples:
			runtime.GC()
			runtime.ReadMemStats(&most)
		}
		return collector.SampleState{Done: n%3 > 0, Failed: collector.ClassDecode, Attempts: 1}
	}
	r.finish(tasks(groups))
	if per := (float64(most.HeapAlloc) - float64(before.HeapAlloc)) / (groups * samples); per > bound {
		t.Errorf("%.1f bytes are kept per sample, want at most %d", per, bound)
	}
	st := r.c.Stats()
	same(t, "remaining, committed and failed", []int{st.Remaining, st.Committed + st.Failed}, 0, groups*samples)
}
