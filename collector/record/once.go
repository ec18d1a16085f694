package record

import (
	"context"
	"sync"
)

// A once holds one value that is fetched on first use. Callers that arrive during a fetch wait for
// the result. A failed fetch leaves the once empty.
type once[T any] struct {
	mu    sync.Mutex
	busy  chan struct{} // closed when the current fetch ends; nil if no fetch is running
	has   bool
	value T
}

// get returns the value. If the value has not yet been fetched, get fetches it first.
func (o *once[T]) get(ctx context.Context, fetch func(context.Context) (T, error)) (T, error) {
	for {
		o.mu.Lock()
		if o.has {
			defer o.mu.Unlock()
			return o.value, nil
		}
		busy := o.busy
		if busy == nil {
			break
		}
		o.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			var zero T
			return zero, context.Cause(ctx)
		}
	}
	done := make(chan struct{})
	o.busy = done
	o.mu.Unlock()
	defer func() { // runs even if the fetch panics, so that no waiting caller blocks forever
		o.mu.Lock()
		o.busy = nil
		o.mu.Unlock()
		close(done)
	}()

	v, err := fetch(ctx)
	if err == nil {
		o.set(v)
	}
	return v, err
}

// drop removes the value if unwanted returns true for it. The next get then fetches a new value.
func (o *once[T]) drop(unwanted func(T) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.has = o.has && !unwanted(o.value)
}

// set stores a value that the caller has obtained in another way.
func (o *once[T]) set(v T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.value, o.has = v, true
}
