package machine

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"
)

// Soft limit of the memory of collect, which includes stacks and the runtime. By default, Go lets the
// heap double between two collections, which takes a quarter more memory. With 64 MB and 20 MB
// instead of 96 MB and 40 MB, a sample takes a fifth more CPU: collections are frequent, and each
// empties the pools.
const (
	memoryBase       = 96 << 20 // memory of a run without samples in flight
	memoryPerFlight  = 64 << 10 // stacks and buffers of one request
	memoryLookEvery  = time.Second
	memoryHeadroom   = 40 << 20 // above the live heap, so that collections stay rare
	memoryLiveMetric = "/gc/heap/live:bytes"
)

// BoundMemory keeps the soft memory limit near the needs of the run until ctx is done. The limit is
// a base plus an amount per sample in flight. If large replies keep more memory alive, it is the
// live heap plus some room. GOMEMLIMIT and GOGC override it.
func BoundMemory(ctx context.Context, inFlight int) {
	if os.Getenv("GOMEMLIMIT") != "" || os.Getenv("GOGC") != "" {
		return
	}
	defer debug.SetMemoryLimit(math.MaxInt64) // Go's default without GOMEMLIMIT
	base := int64(memoryBase) + int64(inFlight)*memoryPerFlight
	sample := []runtimemetrics.Sample{{Name: memoryLiveMetric}}
	tick := time.NewTicker(memoryLookEvery)
	defer tick.Stop()
	for {
		runtimemetrics.Read(sample)
		limit := base
		if v := sample[0].Value; v.Kind() == runtimemetrics.KindUint64 {
			alive := int64(v.Uint64())
			limit = max(limit, alive+alive/4+memoryHeadroom)
		}
		debug.SetMemoryLimit(limit)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// The memory of a tap is its open calls and the state of ended ones. Both come in waves, and by
// default Go keeps the memory of a wave for a long time.
const (
	tapPercent   = 20       // heap growth between two collections
	tapRoom      = 16 << 20 // memory of the runtime besides heap and stacks
	tapLookEvery = 50 * time.Millisecond
	tapStacks    = "/memory/classes/heap/stacks:bytes"
)

// BoundTapMemory keeps the memory of a tap near its live heap until ctx is done. The heap grows
// less between two collections than by default, and idle memory is returned at once. With a
// thousand open calls of 8,000 ids each, a tap has 106 KB resident per call, or 119 KB per stream.
// Without the limit it had up to 125 and 142 KB. A call costs 0.1 ms more CPU. GOMEMLIMIT and GOGC
// override it.
func BoundTapMemory(ctx context.Context) {
	if os.Getenv("GOMEMLIMIT") != "" || os.Getenv("GOGC") != "" {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(tapPercent))
	defer debug.SetMemoryLimit(math.MaxInt64)
	sample := []runtimemetrics.Sample{{Name: memoryLiveMetric}, {Name: tapStacks}}
	tick := time.NewTicker(tapLookEvery)
	defer tick.Stop()
	last := int64(0)
	for {
		runtimemetrics.Read(sample)
		if sample[0].Value.Kind() != runtimemetrics.KindUint64 || sample[1].Value.Kind() != runtimemetrics.KindUint64 {
			return
		}
		alive, stacks := int64(sample[0].Value.Uint64()), int64(sample[1].Value.Uint64())
		limit := alive + alive*3/10 + stacks + tapRoom
		if diff := limit - last; diff > limit/32 || -diff > limit/32 { // setting it stops the world
			debug.SetMemoryLimit(limit)
			last = limit
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
