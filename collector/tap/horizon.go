package tap

import (
	"context"
	"time"
)

// Await waits until Next has returned every call that was added before t and Next has then been
// called once more. The time t is measured by this machine's clock. Another goroutine must call
// Next while Await waits. Next never returns calls that were dropped or lost, but Stats counts
// these calls. [Spool.Add] explains when a call is added.
func (r *Reader) Await(ctx context.Context, t time.Time) error {
	for {
		r.mu.Lock()
		if !r.horizon.Before(t.Add(r.src.skew())) {
			r.mu.Unlock()
			return nil
		}
		if r.moved == nil {
			r.moved = make(chan struct{})
		}
		moved := r.moved
		r.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Skew returns how far the tap's clock is ahead of this machine's clock. The times in a Call are
// measured by the tap's clock.
func (r *Reader) Skew() time.Duration { return r.src.skew() }

func (r *Reader) pass() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.passed.After(r.horizon) {
		return
	}
	r.horizon = r.passed
	if r.moved != nil {
		close(r.moved)
		r.moved = nil
	}
}
