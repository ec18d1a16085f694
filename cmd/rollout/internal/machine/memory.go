package machine

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"
)

const liveHeap = "/gc/heap/live:bytes"

// Parameters for the soft memory limit of collect. The limit covers the heap, stacks and the
// runtime. By default, Go lets the heap double between two collections. A run then needs a quarter
// more memory than with this limit. With a memoryBase of 64 MB and a memoryHeadroom of 20 MB, a
// sample needed a fifth more CPU time. Collections were then frequent, and each collection empties
// the pools.
const (
	memoryBase      = 96 << 20 // memory of a run that has no samples in flight
	memoryPerFlight = 64 << 10 // stacks and buffers for one request
	memoryLookEvery = time.Second
	memoryHeadroom  = 40 << 20 // memory above the live heap, so that collections remain rare
)

// BoundMemory keeps the soft memory limit near the needs of the run until ctx is done. The limit is
// a base plus an amount per sample in flight. If large replies keep more memory alive, the limit is
// the live heap plus some headroom. If GOMEMLIMIT or GOGC is set, BoundMemory does nothing.
func BoundMemory(ctx context.Context, inFlight int) {
	base := int64(memoryBase) + int64(inFlight)*memoryPerFlight
	bound(ctx, memoryLookEvery, nil, func(sizes []int64) int64 {
		return max(base, sizes[0]+sizes[0]/4+memoryHeadroom)
	}, liveHeap)
}

// Parameters for BoundTapMemory. A tap uses memory for open calls and for the state of ended calls.
// Calls come in bursts, and by default Go keeps the memory of a burst for a long time.
const (
	tapPercent   = 20       // heap growth between two collections, in percent of the live heap
	tapGrowth    = 20 << 20 // the least heap growth between two collections
	tapMost      = 500      // the highest percentage; Go's minimal heap is then tapGrowth
	tapRoom      = 16 << 20 // memory of the runtime, excluding heap and stacks
	tapLookEvery = 50 * time.Millisecond
	tapStacks    = "/memory/classes/heap/stacks:bytes"
)

// BoundTapMemory keeps the memory of a tap near the size of the live heap until ctx is done. The
// heap grows less between two collections than by default, and idle memory is returned at once.
// With a thousand open calls of 8,000 ids each, a tap has 106 KB of resident memory per call, or
// 119 KB per streaming call. Without the limit, the figures are up to 125 KB and 142 KB. The limit
// costs 0.1 ms of CPU time per call. A small heap grows by at least tapGrowth, because collections
// after every megabyte cost more CPU time than the calls themselves. If GOMEMLIMIT or GOGC is set,
// BoundTapMemory does nothing.
func BoundTapMemory(ctx context.Context) {
	percent := func(sizes []int64) int { return tapPercentOf(sizes[0]) }
	bound(ctx, tapLookEvery, percent, func(sizes []int64) int64 {
		return sizes[0] + max(sizes[0]*3/10, tapGrowth+tapGrowth/4) + sizes[1] + tapRoom
	}, liveHeap, tapStacks)
}

// tapPercentOf returns how much the heap of a tap can grow between two collections, in percent of the
// live heap.
func tapPercentOf(live int64) int {
	return min(tapMost, max(tapPercent, int(100*tapGrowth/max(live, 1))))
}

// bound calls the functions percent and limit at every tick until ctx is done. It sets the heap growth
// between two collections and the soft memory limit to their results. Both receive the values of the
// given runtime metrics. If percent is nil, Go's default remains.
func bound(ctx context.Context, every time.Duration, percent func(sizes []int64) int, limit func(sizes []int64) int64, metrics ...string) {
	if os.Getenv("GOMEMLIMIT") != "" || os.Getenv("GOGC") != "" {
		return
	}
	growth := 0
	if percent != nil {
		defer debug.SetGCPercent(100) // Go's default if GOGC is not set
	}
	defer debug.SetMemoryLimit(math.MaxInt64) // Go's default if GOMEMLIMIT is not set
	samples, sizes := make([]runtimemetrics.Sample, len(metrics)), make([]int64, len(metrics))
	for i, name := range metrics {
		samples[i].Name = name
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := int64(0)
	for {
		runtimemetrics.Read(samples)
		for i := range samples {
			sizes[i] = int64(samples[i].Value.Uint64()) // these metrics exist since Go 1.21
		}
		// Small changes are skipped, because both settings stop the world.
		if percent != nil {
			if now := percent(sizes); math.Abs(float64(now-growth)) > float64(growth/8) {
				debug.SetGCPercent(now)
				growth = now
			}
		}
		now := limit(sizes)
		if diff := now - last; diff > now/32 || -diff > now/32 {
			debug.SetMemoryLimit(now)
			last = now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
