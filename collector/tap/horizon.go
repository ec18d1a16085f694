package tap

import (
	"context"
	"time"
)

// Horizon returns a time, by our clock, such that Next has returned every call that was
// added before and was kept, and was called again since. What was not kept by then is counted
// in Stats. The horizon moves while calls come, and for some seconds after the last one. See
// [Spool.Add] for what is added when.
func (r *Reader) Horizon() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.horizon.IsZero() {
		return r.horizon
	}
	return r.horizon.Add(-r.src.skew())
}

// Await waits until Horizon is t or later. Somebody must call Next meanwhile.
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

// Skew is how far the clock of the tap's machine is ahead of ours: the times of a Call are
// by that clock.
func (r *Reader) Skew() time.Duration { return r.src.skew() }

// pass moves the horizon to what was passed.
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
