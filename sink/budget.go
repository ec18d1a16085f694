package sink

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// A budget bounds the bytes of samples that were accepted and not yet encoded. It serves waiting
// callers in order, so a large sample does not wait forever.
type budget struct {
	size int64
	free *semaphore.Weighted
	used atomic.Int64 // exceeds size while a larger sample passes alone

	// waiting counts waiting callers. press is called when a caller starts to wait.
	waiting atomic.Int32
	press   func()

	// open is the context that close cancels. close also wakes the waiting callers.
	open  context.Context
	close context.CancelFunc
}

func newBudget(bytes int64) *budget {
	b := &budget{size: bytes, free: semaphore.NewWeighted(bytes), press: func() {}}
	b.open, b.close = context.WithCancel(context.Background())
	return b
}

// acquire reserves n bytes. If n exceeds the size, acquire waits for the whole budget. If close is
// called or ctx is done while it waits, it returns errStopped or the cause of ctx.
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
