package sink

import (
	"context"
	"slices"
)

// relay takes samples from Append and hands them to the writers in order. Without
// it a collector's worker would wait for as long as a writer compresses pages; how
// much may wait here instead is the budget's to say.
//
// It runs until the dataset drains and the writers have all that was accepted, ctx
// is done, or no writer is left, and tells the samples that nobody took why.
func (d *Dataset) relay(ctx context.Context) {
	var queue []accepted
	draining := d.draining
	take := d.work
	for {
		var hand chan accepted
		var first accepted
		switch {
		case len(queue) > 0:
			hand, first = d.hand, queue[0]
		case take == nil:
			close(d.hand)
			return
		}
		select {
		case a := <-take:
			d.pending(1)
			queue = append(queue, a)
		case hand <- first:
			queue = slices.Delete(queue, 0, 1)
		case <-draining:
			draining, take = nil, nil
		case <-ctx.Done():
			d.drop(queue, context.Cause(ctx))
			return
		case <-d.alone:
			d.drop(queue, d.whyStopped())
			return
		}
	}
}

// drop tells samples that no writer took that none will.
func (d *Dataset) drop(queue []accepted, err error) {
	d.pending(-len(queue))
	for _, a := range queue {
		d.budget.release(a.bytes)
		a.done(err)
	}
}
