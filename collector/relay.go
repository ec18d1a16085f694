package collector

import (
	"context"
	"slices"
	"sync"
	"time"
)

// move passes the sample to the relay. The relay passes it to the first endpoint that has room.
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

// A relay holds the samples that are moving from one endpoint to another.
type relay struct{ in, out chan claim }

// run passes samples to endpoints until the channel finished is closed. If a sample is cut while it
// moves, run appends it as cut. If the run is drained, run releases all other samples, which must
// be run later. After an error from the sink, it releases all samples.
func (r *relay) run(ctx context.Context, c *Collector, finished <-chan struct{}, unsettled *sync.WaitGroup) error {
	var waiting []claim
	var failed error
	// sweep removes the samples that have been cut. If the parameter all is true, it also removes
	// the other samples.
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
			unsettled.Done() // called even after an error, because Run waits for every sample
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
