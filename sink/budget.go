package sink

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// A budget limits the memory for samples that have been accepted but not yet encoded. It serves
// waiting callers in order, so that a large sample does not wait forever.
type budget struct {
	size int64
	free *semaphore.Weighted
	used atomic.Int64 // can exceed size, because a single sample can be larger than size

	// waiting counts the callers that are waiting in acquire. acquire calls press before it starts
	// to wait.
	waiting atomic.Int32
	press   func()

	// Calling close cancels the context in the field open. This also wakes the waiting callers.
	open  context.Context
	close context.CancelFunc
}

func newBudget(bytes int64) *budget {
	b := &budget{size: bytes, free: semaphore.NewWeighted(bytes), press: func() {}}
	b.open, b.close = context.WithCancel(context.Background())
	return b
}

// acquire reserves n bytes. If n exceeds the size of the budget, acquire waits until the whole
// budget is free. If close is called during the wait, acquire returns errStopped. If ctx ends
// during the wait, acquire returns the cause of ctx.
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

func (b *budget) release(n int64) {
	b.used.Add(-n)
	b.free.Release(min(n, b.size))
}

func (b *budget) inUse() int64 { return b.used.Load() }
