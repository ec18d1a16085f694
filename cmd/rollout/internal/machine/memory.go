package machine

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"
)

// The soft limit of the heap that collect gives itself. Go's own rule, to let the
// heap double between two collections, would cost twice the memory for little
// time: almost all of it is buffers that are filled and emptied.
const (
	memoryBase       = 64 << 20 // what a run needs besides its samples in flight
	memoryPerFlight  = 64 << 10 // stacks and buffers of one request
	memoryLookEvery  = time.Second
	memoryHeadroom   = 20 << 20 // above what is alive, so that collecting stays cheap
	memoryLiveMetric = "/gc/heap/live:bytes"
)

// BoundMemory keeps the soft memory limit near what the run needs, until ctx is
// done: the base for so many samples in flight, or, where large replies keep more
// alive, that and some room. GOMEMLIMIT and GOGC are a person's word and win.
func BoundMemory(ctx context.Context, inFlight int) {
	if os.Getenv("GOMEMLIMIT") != "" || os.Getenv("GOGC") != "" {
		return
	}
	defer debug.SetMemoryLimit(math.MaxInt64) // Go's default where GOMEMLIMIT is not set
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

// The memory of a tap is that of the calls that are open, and what it remembers of those that
// ended. Both come and go in waves, and Go's own rule leaves what a wave needed for long.
const (
	tapPercent   = 20       // by how much its heap grows between two collections
	tapRoom      = 16 << 20 // what the runtime and the program have besides heap and stacks
	tapLookEvery = 50 * time.Millisecond
	tapStacks    = "/memory/classes/heap/stacks:bytes"
)

// BoundTapMemory keeps the memory of a tap near what is alive, until ctx is done: its heap grows
// less between two collections than Go's would, and what lies idle is given back at once. With a
// thousand open calls of 8,000 ids each, a tap has 106 KB resident for each, or 119 KB if they are
// streams, where it had up to 125 and 142 without the limit. A call costs 0.1 ms of CPU more.
// GOMEMLIMIT and GOGC are a person's word and win.
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
