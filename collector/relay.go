package collector

import (
	"context"
	"slices"
	"sync"
	"time"
)

// move sends the sample to the first endpoint with room for it.
func (w *worker) move(ctx context.Context, cl *claim) (bool, error) {
	w.ep.lock().Detach(&cl.retry.budget)
	w.ep.unlock()
	cl.place.leave()
	cl.place.moved, cl.place.queuedAt = true, time.Now()
	w.c.shares.addMoving(1)
	select {
	case w.c.relay.in <- *cl:
		return true, nil
	case <-ctx.Done():
		w.c.shares.addMoving(-1)
		return false, context.Cause(ctx)
	}
}

// A relay holds the samples that move from one endpoint to another.
type relay struct{ in, out chan claim }

// run passes samples on until finished is closed. A sample that is cut while it moves ends here. On
// a drain, run unclaims the other samples: they remain to be done. After an error of the sink, it
// unclaims all samples.
func (r *relay) run(ctx context.Context, c *Collector, finished <-chan struct{}, unsettled *sync.WaitGroup) error {
	var waiting []claim
	var failed error
	// sweep ends the samples that are cut, and the others too if all is true.
	sweep := func(all bool) {
		waiting = slices.DeleteFunc(waiting, func(cl claim) bool {
			cut := cl.cut.cause() != nil
			if !cut && !all && failed == nil {
				return false
			}
			if cut && failed == nil && ctx.Err() == nil {
				failed = c.censor(ctx, &cl)
			}
			c.shares.addMoving(-1)
			if !cl.settled {
				c.counters.unclaim(cl.failed)
			}
			unsettled.Done() // for every sample, even after an error: Run waits for it
			return true
		})
	}
	for {
		if sweep(c.stopping(ctx)); failed != nil {
			sweep(true)
			return failed
		}
		var out chan<- claim
		var head claim
		drain := c.drain
		if len(waiting) > 0 {
			out, head = r.out, waiting[0]
		} else {
			drain = nil
		}
		select {
		case cl := <-r.in:
			waiting = append(waiting, cl)
		case out <- head:
			waiting = waiting[1:]
			c.shares.addMoving(-1)
		case <-firstDeadline(waiting):
		case <-drain:
		case <-finished:
			return nil
		case <-ctx.Done():
			sweep(true)
			return failed
		}
	}
}
