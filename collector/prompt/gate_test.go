package prompt_test

import (
	"math"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bytesPerRun returns the smallest allocation of the runs in bytes.
func bytesPerRun(runs int, f func()) uint64 {
	least := uint64(math.MaxUint64)
	var before, after runtime.MemStats
	for range runs {
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// TestGateRebuild bounds the cost of rebuilding: allocations and bytes per call, and CPU. Ten calls
// cost at most eight times as much CPU as encoding the text of the last call once, because
// consecutive prompts share their ids. Reading and comparing the trace is a quarter of it.
func TestGateRebuild(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("measures for some seconds: run without -short")
	}
	model := qwen3(t)
	known := rollout(t, model, 1, 10, 8000, true)
	r := prompt.NewRebuilder(model, true, true)
	var calls []tokenize.Call
	once := func() {
		if calls = known.rebuilt(t, r); calls[9].Grade != tokenize.CountVerified {
			t.Fatal(calls[9].Note)
		}
	}
	once()
	const mostAllocs = 1200 // for 10 calls; 872 when this was written
	if n := testing.AllocsPerRun(10, once); n > mostAllocs {
		t.Errorf("%.0f allocations for ten calls, want ≤ %d", n, mostAllocs)
	}
	// Most of it are the shared ids, the rest their values: 207 kB when this was written, of which
	// the longest prompt has 30. Pools can be emptied meanwhile.
	const mostBytes = 320 << 10
	if n := bytesPerRun(10, once); n > mostBytes {
		t.Errorf("%d bytes for ten calls, want ≤ %d", n, mostBytes)
	}
	text := decode(t, model, calls[9].PromptIDs)
	best := func(f func()) time.Duration {
		least := time.Hour
		for range 7 {
			runtime.GC()
			before := cpuTime(t)
			for range 10 {
				f()
			}
			least = min(least, cpuTime(t)-before)
		}
		return least / 10
	}
	whole := best(once)
	encode := best(func() { encode(t, model, text) })
	t.Logf("ten calls rebuilt in %v, the last prompt encoded in %v, ratio %.1f", whole, encode, float64(whole)/float64(encode))
	if whole > 8*encode {
		t.Errorf("ten calls cost %v, more than 8 × %v", whole, encode)
	}
}
