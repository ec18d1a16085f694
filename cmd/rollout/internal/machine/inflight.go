// Package machine adapts a run to this machine's limits on open files and memory.
package machine

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
)

// This file computes the maximum number of samples in flight from the user's limits and the limits
// of the machine.

// SpareFiles is the number of files that a run opens in addition to its connections.
const SpareFiles = 64

// bytesInFlight is the minimum memory that a sample in flight uses, in this process and in the
// kernel. It covers the stacks and buffers of the sample's requests.
const bytesInFlight = 128 << 10

// A Machine contains the resources that a run can use.
type Machine struct {
	Files  uint64 // limit on open files
	memory uint64 // available bytes; 0 if unknown
}

// This returns the resources of this process. If a limit cannot be read, the resource counts as
// unlimited.
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

// meminfo returns the number of bytes of memory that are available without swapping, or 0 if the
// number is unknown. Only Linux reports it.
func meminfo(path string) uint64 {
	kib, _ := field(path, "MemAvailable:")
	return kib << 10
}

// cgroupMemory returns how many more bytes of memory the control group in dir can use. The page
// cache for the group's files counts as free, because the kernel can reclaim it. Otherwise a group
// that reads many files would always be near its limit. The result ok is false if there is no
// limit.
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

// field returns the number that follows name in a file whose lines consist of a name and a number.
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

func number(path string) (uint64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// InFlight returns the limit on the number of samples in flight for each server. The limit is the
// server's max_in_flight, but not more than the number of planned samples. If the machine has too
// few files or too little memory for the sum of the limits, all limits are lowered in proportion.
// The result why is the reason if limits were lowered, and "" otherwise.
func InFlight(c *config.Config, planned int, m Machine) (each []int, why string) {
	for i := range c.Server.URLs {
		each = append(each, c.InFlight(&c.Server.URLs[i]))
	}
	if len(each) == 0 { // a run without Letta servers has a single endpoint
		each = []int{c.Server.MaxInFlight}
	}
	asked := show(each)
	because := func(format string, args ...any) {
		why = fmt.Sprintf("max_in_flight was lowered from %s to %s: ", asked, show(each)) + fmt.Sprintf(format, args...)
	}
	if n := max(planned, 1); len(each) > 0 && slices.Max(each) > n {
		for i := range each {
			each[i] = min(each[i], n)
		}
		because("the run has %s", format.Plural(int64(planned), "sample"))
	}
	lower := func(to uint64, format string, args ...any) {
		sum := uint64(Sum(each))
		if sum <= max(to, uint64(len(each))) {
			return
		}
		for i, n := range each {
			hi, lo := bits.Mul64(uint64(n), to)
			part, _ := bits.Div64(hi, lo, sum)
			each[i] = max(1, int(part))
		}
		because(format, args...)
	}
	spare := uint64(SpareFiles)
	spare += 3 * uint64(c.Reward.Processes) * uint64(c.Reward.Programs())
	lower(m.Files-min(m.Files, spare), "the limit on open files is %d (ulimit -n)", m.Files)
	if m.memory > 0 {
		lower(m.memory/2/bytesInFlight, "%s of memory is free, and samples in flight can use at most half", format.Bytes(int64(min(m.memory, math.MaxInt64))))
	}
	return each, why
}

// Sum returns the limit on the number of samples in flight at all servers together.
func Sum(each []int) (n int) {
	for _, one := range each {
		n += one
	}
	return n
}

func show(each []int) string {
	texts := make([]string, len(each))
	for i, n := range each {
		texts[i] = strconv.Itoa(n)
	}
	if len(texts) > 0 && slices.Min(each) == slices.Max(each) {
		texts = texts[:1]
	}
	return strings.Join(texts, ", ")
}
