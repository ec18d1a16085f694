package machine

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
)

// A server's own max_in_flight replaces the shared one. If files or memory do not suffice for all
// servers, each gets a share.
func TestInFlightIsBounded(t *testing.T) {
	t.Parallel()
	const shared, all = 0, math.MaxInt32
	roomy, own := Machine{Files: math.MaxUint64}, []int{shared, 300, all}
	for _, tt := range []struct {
		name           string
		asked, planned int
		servers        []int // their own max_in_flight
		processes      int   // of a reward command
		m              Machine
		want           []int
		why            string // after "max_in_flight was lowered from "
	}{
		{"as asked", 24, 100, []int{shared, shared}, 0, roomy, []int{24, 24}, ""},
		{"few samples", 10_000_000, 6, []int{shared}, 0, roomy, []int{6}, "10000000 to 6: the run has 6 samples"},
		{"few files", 5000, 9000, []int{shared, shared}, 0, Machine{Files: 1024}, []int{480, 480}, "5000 to 480: the limit on open files is 1024 (ulimit -n)"},
		{"a scoring program needs some", 5000, 9000, []int{shared, shared}, 20, Machine{Files: 1024}, []int{450, 450}, "5000 to 450: the limit on open files is 1024 (ulimit -n)"},
		{"hardly a file", 24, 100, []int{shared, shared, shared}, 0, Machine{Files: 20}, []int{1, 1, 1}, "24 to 1: the limit on open files is 20 (ulimit -n)"},
		{"little memory", 5000, 9000, []int{shared}, 0, Machine{Files: 1 << 20, memory: 256 << 20}, []int{1024}, "5000 to 1024: 268 MB of memory is free, and samples in flight can use at most half"},
		{"what bounds most is named", 5000, 600, []int{shared}, 0, Machine{Files: 164, memory: 256 << 20}, []int{100}, "5000 to 100: the limit on open files is 164 (ulimit -n)"},
		{"nothing to do", 24, 0, []int{shared}, 0, roomy, []int{1}, "24 to 1: the run has 0 samples"},
		{"own limits", 24, all, own, 0, roomy, []int{24, 300, all}, ""},
		{"own limits, few samples", 24, 100, own, 0, roomy, []int{24, 100, 100}, "24, 300, 2147483647 to 24, 100, 100: the run has 100 samples"},
		{"own limits, few files", 24, 300, own, 0, Machine{Files: 64 + 312}, []int{12, 150, 150}, "24, 300, 2147483647 to 12, 150, 150: the limit on open files is 376 (ulimit -n)"},
		{"own limits, no file", 24, 300, own, 0, Machine{}, []int{1, 1, 1}, "24, 300, 2147483647 to 1: the limit on open files is 0 (ulimit -n)"},
	} {
		c := config.NewLoader(func(string) string { return "" }).Config
		c.Server.MaxInFlight = tt.asked
		if tt.processes > 0 {
			c.Reward.Kind, c.Reward.Processes = config.RewardCommand, tt.processes
		}
		for _, n := range tt.servers {
			c.Server.URLs = append(c.Server.URLs, config.Server{MaxInFlight: n})
		}
		if tt.why != "" {
			tt.why = "max_in_flight was lowered from " + tt.why
		}
		if each, why := InFlight(c, tt.planned, tt.m); !slices.Equal(each, tt.want) || why != tt.why {
			t.Errorf("%s: %d, %q, want %d, %q", tt.name, each, why, tt.want, tt.why)
		}
	}
	if m := This(); m.Files == 0 || runtime.GOOS == "linux" && m.memory == 0 {
		t.Errorf("this machine has %+v", m)
	}
}

// The page cache counts as free memory, because the kernel reclaims it when needed.
func TestPageCacheIsFreeMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if left, ok := cgroupMemory(dir); ok {
		t.Errorf("no group leaves %d", left)
	}
	write("memory.max", "max\n")
	if left, ok := cgroupMemory(dir); ok {
		t.Errorf("no limit leaves %d", left)
	}
	write("memory.max", "4294967296\n")
	write("memory.current", "4294963200\n")
	write("memory.stat", "anon 300000000\nfile 3900000000\nshmem 100000000\ninactive_file 3000000000\nactive_file 800000000\n")
	if left, ok := cgroupMemory(dir); !ok || left != 4096+3_800_000_000 {
		t.Errorf("%d, %v, want the cache and what is not used", left, ok)
	}
}

// A small heap of a tap can grow by a fixed amount, and a large one by a share of its size.
func TestTapGrowth(t *testing.T) {
	t.Parallel()
	for live, want := range map[int64]int{0: 500, 1 << 20: 500, 4 << 20: 500, 10 << 20: 200, 100 << 20: 20, 1 << 30: 20} {
		if got := tapPercentOf(live); got != want {
			t.Errorf("a heap of %d MB can grow by %d%%, want %d%%", live>>20, got, want)
		}
	}
}

// While a run or a tap lasts, the process has a memory limit that follows the live heap, and a tap
// has its own limit of garbage. The user's own settings win. Not parallel, because the settings belong
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
		"tap": {BoundTapMemory, tapMost, tapRoom},
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
