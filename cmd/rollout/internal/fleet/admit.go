package fleet

import (
	"context"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
)

// Admit waits until the store keeps up with the worker. If another worker has claimed the partition of the
// attempt's task, the error wraps collector.ErrMoved. If the worker has failed, it wraps collector.ErrStorage. Use the method as collector.Config.Admit.
func (w *Worker) Admit(ctx context.Context, a collector.Attempt) error {
	if err := w.awaitStore(ctx); err != nil {
		if w.failed.Err() != nil { // the collector must know that nothing can wait for the store
			err = fmt.Errorf("%w: %w", collector.ErrStorage, err)
		}
		return err
	}
	p, c, lost := w.claimOf(a.Task.ID)
	if lost {
		w.settle(c, 1)
		return moved(p)
	}
	return nil
}

// awaitStore waits until the store keeps up.
func (w *Worker) awaitStore(ctx context.Context) error {
	for {
		w.mu.Lock()
		ok, beats := w.keepsUp(), w.pulse.beats
		w.mu.Unlock()
		switch {
		case w.failed.Err() != nil:
			return context.Cause(w.failed)
		case ok:
			return nil
		}
		select {
		case <-beats:
		case <-w.clock.After(recount):
		case <-w.failed.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// keepsUp reports whether the store keeps up with this worker: it has acknowledged a new heartbeat, and no
// commit takes longer than staleAfter. The caller must have locked w.mu.
//
// A commit that waits for the store continues by itself, whether attempts start or not. So a worker that
// waits for its commits never waits for its own samples.
func (w *Worker) keepsUp() bool {
	ok := w.clock.Now().Sub(w.pulse.acked) <= staleAfter
	for _, c := range w.claimed {
		ok = ok && c.dataset.Committing() <= staleAfter
	}
	if ok == w.waits {
		w.waits = !ok
		w.cfg.Waits(w.waits)
	}
	return ok
}
