package sink

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// A budget bounds the bytes of the samples that were accepted and not yet encoded. Those
// who wait are served in order, so a large sample is not passed over for ever.
type budget struct {
	size int64
	free *semaphore.Weighted
	used atomic.Int64 // more than size while a larger sample passes alone

	// waiting counts those who wait; press is called when one begins to.
	waiting atomic.Int32
	press   func()

	// open ends with close, and wakes those who wait.
	open  context.Context
	close context.CancelFunc
}

func newBudget(bytes int64) *budget {
	b := &budget{size: bytes, free: semaphore.NewWeighted(bytes), press: func() {}}
	b.open, b.close = context.WithCancel(context.Background())
	return b
}

// acquire takes n bytes; more than all of the budget pass alone. Where it has to wait, it
// returns errStopped when close is called first, and the cause of ctx when that is done
// first.
func (b *budget) acquire(ctx context.Context, n int64) error {
	if part := min(n, b.size); !b.free.TryAcquire(part) {
		b.waiting.Add(1)
		defer b.waiting.Add(-1)
		b.press()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(b.open, func() { cancel(errStopped) })()
		if b.free.Acquire(ctx, part) != nil {
			return context.Cause(ctx)
		}
	}
	b.used.Add(n)
	return nil
}

// release gives n bytes back.
func (b *budget) release(n int64) {
	b.used.Add(-n)
	b.free.Release(min(n, b.size))
}

func (b *budget) inUse() int64 { return b.used.Load() }
