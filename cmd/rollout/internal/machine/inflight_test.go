package machine

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
)

func TestInFlightIsBounded(t *testing.T) {
	t.Parallel()
	roomy := Machine{Files: math.MaxUint64}
	for _, tt := range []struct {
		name             string
		asked            int
		planned, servers int
		processes        int // of a reward command
		m                Machine
		want             int
		why              string
	}{
		{"as asked", 24, 100, 2, 0, roomy, 24, ""},
		{"few samples", 10_000_000, 6, 1, 0, roomy, 6, "max_in_flight lowered from 10000000 to 6: the run has 6 samples"},
		{"few files", 5000, 9000, 2, 0, Machine{Files: 1024}, 480, "max_in_flight lowered from 5000 to 480: the limit of open files is 1024 (ulimit -n)"},
		{"a scoring program needs some", 5000, 9000, 2, 20, Machine{Files: 1024}, 450, "max_in_flight lowered from 5000 to 450: the limit of open files is 1024 (ulimit -n)"},
		{"hardly a file", 24, 100, 3, 0, Machine{Files: 20}, 1, "max_in_flight lowered from 24 to 1: the limit of open files is 20 (ulimit -n)"},
		{"little memory", 5000, 9000, 1, 0, Machine{Files: 1 << 20, memory: 256 << 20}, 1024, "max_in_flight lowered from 5000 to 1024: 268 MB of memory is free, and samples in flight can use half of it"},
		{"what bounds most is named", 5000, 600, 1, 0, Machine{Files: 164, memory: 256 << 20}, 100, "max_in_flight lowered from 5000 to 100: the limit of open files is 164 (ulimit -n)"},
		{"nothing to do", 24, 0, 1, 0, roomy, 1, "max_in_flight lowered from 24 to 1: the run has 0 samples"},
	} {
		c := config.NewLoader(func(string) string { return "" }).Config
		c.Server.MaxInFlight = tt.asked
		if tt.processes > 0 {
			c.Reward.Kind, c.Reward.Processes = config.RewardCommand, tt.processes
		}
		c.Server.URLs = make([]config.Server, tt.servers)
		want := make([]int, tt.servers)
		for i := range want {
			want[i] = tt.want
		}
		if each, why := InFlight(c, tt.planned, tt.m); !slices.Equal(each, want) || why != tt.why {
			t.Errorf("%s: %d, %q, want %d, %q", tt.name, each, why, want, tt.why)
		}
	}
	if m := This(); m.Files == 0 || runtime.GOOS == "linux" && m.memory == 0 {
		t.Errorf("this machine has %+v", m)
	}
}

// A server's own max_in_flight replaces the shared one. If files or memory do not suffice for all
// servers, each gets a share.
func TestInFlightOfEachServer(t *testing.T) {
	t.Parallel()
	c := config.NewLoader(func(string) string { return "" }).Config
	c.Server.URLs = []config.Server{{}, {MaxInFlight: 300}, {MaxInFlight: math.MaxInt32}}
	for _, tt := range []struct {
		planned int
		files   uint64
		want    []int
		why     string
	}{
		{math.MaxInt32, math.MaxUint64, []int{24, 300, math.MaxInt32}, ""},
		{100, math.MaxUint64, []int{24, 100, 100}, "max_in_flight lowered from 24, 300, 2147483647 to 24, 100, 100: the run has 100 samples"},
		{300, 64 + 312, []int{12, 150, 150}, "max_in_flight lowered from 24, 300, 2147483647 to 12, 150, 150: the limit of open files is 376 (ulimit -n)"},
		{300, 0, []int{1, 1, 1}, "max_in_flight lowered from 24, 300, 2147483647 to 1: the limit of open files is 0 (ulimit -n)"},
	} {
		if each, why := InFlight(c, tt.planned, Machine{Files: tt.files}); !slices.Equal(each, tt.want) || why != tt.why {
			t.Errorf("%d samples, %d files: %d, %q, want %d, %q", tt.planned, tt.files, each, why, tt.want, tt.why)
		}
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
