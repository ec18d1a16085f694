package record

import (
	"context"
	"sync"
)

// A once holds one value that is fetched when it is first asked for. Those who ask while
// it is being fetched wait. A fetch that fails leaves it empty.
type once[T any] struct {
	mu    sync.Mutex
	busy  chan struct{} // closed at the end of the fetch that is under way; nil: there is none
	has   bool
	value T
}

// get returns the value, fetching it where it is not there.
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
	defer func() { // also where fetch panics: those who wait must not find it busy for ever
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

// drop makes the next one who asks fetch the value again, where it is there and unwanted.
func (o *once[T]) drop(unwanted func(T) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.has = o.has && !unwanted(o.value)
}

// set puts a value there that was had in another way.
func (o *once[T]) set(v T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.value, o.has = v, true
}
