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
	bound(ctx, 0, memoryLookEvery, func(sizes []int64) int64 {
		return max(base, sizes[0]+sizes[0]/4+memoryHeadroom)
	}, liveHeap)
}

// Parameters for BoundTapMemory. A tap uses memory for open calls and for the state of ended calls.
// Calls come in bursts, and by default Go keeps the memory of a burst for a long time.
const (
	tapPercent   = 20       // heap growth between two collections, in percent
	tapRoom      = 16 << 20 // memory of the runtime, excluding heap and stacks
	tapLookEvery = 50 * time.Millisecond
	tapStacks    = "/memory/classes/heap/stacks:bytes"
)

// BoundTapMemory keeps the memory of a tap near the size of the live heap until ctx is done. The
// heap grows less between two collections than by default, and idle memory is returned at once.
// With a thousand open calls of 8,000 ids each, a tap has 106 KB of resident memory per call, or
// 119 KB per streaming call. Without the limit, the figures are up to 125 KB and 142 KB. The limit
// costs 0.1 ms of CPU time per call. If GOMEMLIMIT or GOGC is set, BoundTapMemory does nothing.
func BoundTapMemory(ctx context.Context) {
	bound(ctx, tapPercent, tapLookEvery, func(sizes []int64) int64 {
		return sizes[0] + sizes[0]*3/10 + sizes[1] + tapRoom
	}, liveHeap, tapStacks)
}

// bound calls the function limit at every tick until ctx is done, and sets the soft memory limit to
// its result. limit receives the values of the given runtime metrics. The parameter percent is the
// heap growth between two collections. If percent is 0, Go's default remains.
func bound(ctx context.Context, percent int, every time.Duration, limit func(sizes []int64) int64, metrics ...string) {
	if os.Getenv("GOMEMLIMIT") != "" || os.Getenv("GOGC") != "" {
		return
	}
	if percent > 0 {
		defer debug.SetGCPercent(debug.SetGCPercent(percent))
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
		now := limit(sizes)
		if diff := now - last; diff > now/32 || -diff > now/32 { // skip small changes, because setting the limit stops the world
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
