// Package machine bounds a run by what this machine has: files, and memory.
package machine

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
)

// How many samples may be in flight: what the user allows, and no more than can be.

// SpareFiles is what a run opens beside its connections.
const SpareFiles = 64

// bytesInFlight is what a sample in flight costs at least: stacks and buffers of its
// requests, here and in the kernel.
const bytesInFlight = 128 << 10

// A Machine is what a run may use of this one.
type Machine struct {
	Files  uint64 // open at once
	memory uint64 // bytes; 0: not known
}

// This looks at the limits of this process. A limit that cannot be read bounds
// nothing.
func This() Machine {
	m := Machine{Files: math.MaxUint64}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		m.Files = limit.Cur
	}
	m.memory = meminfo("/proc/meminfo")
	if left, ok := cgroupMemory("/sys/fs/cgroup"); ok && (m.memory == 0 || left < m.memory) {
		m.memory = max(left, 1)
	}
	return m
}

// meminfo is the memory that is available without swapping, in bytes, as Linux says it;
// 0 where it does not.
func meminfo(path string) uint64 {
	kib, _ := field(path, "MemAvailable:")
	return kib << 10
}

// cgroupMemory is how much memory the control group in dir may still take, in bytes. What
// its files take in the page cache counts as free: the kernel gives it back, and a group
// that reads much is always near its limit with it. ok is false where there is no limit.
func cgroupMemory(dir string) (left uint64, ok bool) {
	top, ok := number(filepath.Join(dir, "memory.max"))
	if !ok {
		return 0, false
	}
	used, _ := number(filepath.Join(dir, "memory.current"))
	for _, cached := range []string{"inactive_file", "active_file"} {
		n, _ := field(filepath.Join(dir, "memory.stat"), cached)
		used -= min(used, n)
	}
	return top - min(top, used), true
}

// field is the number behind a name, in a file of one name and one number a line.
func field(path, name string) (uint64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		words := strings.Fields(s.Text())
		if len(words) < 2 || words[0] != name {
			continue
		}
		n, err := strconv.ParseUint(words[1], 10, 64)
		return n, err == nil
	}
	return 0, false
}

// number reads a file that holds one number.
func number(path string) (uint64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// InFlight is how many samples may be in flight per server: max_in_flight, but no more
// than are planned, and than this machine has files and memory for. why says in one line
// what lowered it; it is empty where nothing did.
func InFlight(c *config.Config, planned, servers int, m Machine) (n int, why string) {
	asked := c.Server.MaxInFlight
	n = asked
	lower := func(to uint64, format string, args ...any) {
		if to = max(to, 1); to < uint64(n) {
			n = int(to)
			why = fmt.Sprintf("max_in_flight %d is lowered to %d: ", asked, n) + fmt.Sprintf(format, args...)
		}
	}
	lower(uint64(max(planned, 0)), "the run has %d samples", planned)
	spare := uint64(SpareFiles)
	if c.Reward.Kind == config.RewardCommand {
		spare += 3 * uint64(c.Reward.Processes)
	}
	per := uint64(max(servers, 1))
	lower((m.Files-min(m.Files, spare))/per, "%d files may be open at once (ulimit -n)", m.Files)
	if m.memory > 0 {
		lower(m.memory/2/bytesInFlight/per, "%s of memory are free, and half of it is for samples in flight", human.Bytes(int64(min(m.memory, math.MaxInt64))))
	}
	return n, why
}
