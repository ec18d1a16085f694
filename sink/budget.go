package sink

import (
	"context"
	"sync"
)

// A budget bounds a sum of bytes. Those who wait are served in order, so a large
// sample is not passed over for ever.
type budget struct {
	mu      sync.Mutex
	max     int64
	used    int64
	waiting []*waiter
}

type waiter struct {
	n     int64
	ready chan struct{} // closed with the bytes already taken
}

func newBudget(bytes int64) *budget { return &budget{max: bytes} }

// fits reports whether n more bytes may be taken: more than max pass alone.
func (b *budget) fits(n int64) bool { return b.used == 0 || b.used+n <= b.max }

// acquire takes n bytes. It returns errStopped when stop is closed first, or the
// cause of ctx when that is done first.
func (b *budget) acquire(ctx context.Context, n int64, stop <-chan struct{}) error {
	b.mu.Lock()
	if len(b.waiting) == 0 && b.fits(n) {
		b.used += n
		b.mu.Unlock()
		return nil
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()

	var err error
	select {
	case <-w.ready:
		return nil
	case <-stop:
		err = errStopped
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready: // taken in the meantime: give it back
		b.used -= n
	default:
		for i, o := range b.waiting {
			if o == w {
				b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
				break
			}
		}
	}
	b.wake()
	return err
}

// release gives n bytes back.
func (b *budget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.wake()
}

// wake serves those at the head of the line who fit.
func (b *budget) wake() {
	for len(b.waiting) > 0 && b.fits(b.waiting[0].n) {
		w := b.waiting[0]
		b.waiting[0] = nil
		b.waiting = b.waiting[1:]
		b.used += w.n
		close(w.ready)
	}
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
