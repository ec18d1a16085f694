package runs

import (
	"context"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// Clean removes the objects of a fleet that no reader has needed for the given time, by the clock of the
// store. It calls removed for each of them, one at a time. If dry is true, it only calls removed. The error
// has an exit code.
func (r *Run) Clean(ctx context.Context, age time.Duration, dry bool, removed func(url string, i store.Info) error) error {
	now, err := r.Store.Now()
	if err != nil {
		return exit.With(exit.Storage, err)
	}
	var mu sync.Mutex
	remove := func(objects store.Store, list []store.Info) error {
		for _, i := range list {
			if !dry {
				if err := objects.Delete(i.Name); err != nil {
					return err
				}
			}
			mu.Lock()
			err := removed(objects.String()+"/"+i.Name, i)
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	}
	err = r.Each(ctx, func(_ context.Context, _ int, d *Dataset) error {
		list, err := sink.Garbage(d.Store, now.Add(-age))
		if err != nil {
			return d.Wrap(err)
		}
		return remove(d.Store, list)
	})
	if err != nil {
		return r.Error(err)
	}
	list, err := r.Fleet.Garbage(r.Store, now.Add(-age))
	if err == nil {
		err = remove(r.Store, list)
	}
	return exit.With(exit.Storage, err)
}
