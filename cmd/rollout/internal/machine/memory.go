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

// oftenPercent is by how much the heap of a tap grows between two collections. With a thousand
// open calls of 8,000 ids each has 106 to 116 KB resident, where it is 144 KB with Go's 100. A
// call costs 0.1 ms of CPU more.
const oftenPercent = 20

// CollectOften lets the heap grow less between two collections than Go does, until the function
// that it returns is called. GOGC is a person's word and wins.
func CollectOften() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(oftenPercent)
	return func() { debug.SetGCPercent(before) }
}
