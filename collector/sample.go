package collector

import (
	"context"
	"time"
)

// A sample is one repetition of a task. It does not change after the feed has sent it.
type sample struct {
	task      *Task
	group     string
	key       string
	index     int
	groupSize int
	cut       cutoff
	failed    Class // class of the sample's failure row in the dataset, if the sample is retried
	begun     bool  // an earlier process began the sample's group
}

// A claim is a sample that is in progress in a run. The feed creates it, and then a worker or the
// relay owns it.
type claim struct {
	sample
	retry   retryState
	place   placement
	settled bool // the sample or its failure is in the sink
}

// collect makes attempts until the sample or its failure is in the sink. It returns earlier if the
// sample moves to another endpoint or must be run later. An error ends the run.
func (w *worker) collect(ctx context.Context, cl *claim) (moved bool, err error) {
	c := w.c
	c.counters.claim(w.slot, cl, w.ep.Name, time.Now())
	w.ep.held.Add(1)
	var endSpan func(error)
	defer func() {
		if endSpan != nil {
			endSpan(cl.retry.last.err)
		}
		if !moved && !cl.settled {
			c.counters.unclaim(cl.failed)
		}
		c.counters.release(w.slot)
		cl.place.leave()
		w.ep.held.Add(-1)
	}()
	for {
		then, err := cl.place.acquire(ctx, cl.cut, cl.retry.open)
		if then == try {
			if endSpan == nil {
				ctx, endSpan = c.cfg.Events.SampleSpan(ctx, cl.upcoming(c.cfg.RunID), w.ep.Name) //nolint:fatcontext // runs only once
			}
			a := w.attempt(ctx, cl)
			then, err = w.followUp(ctx, cl, a)
		}
		switch {
		case err != nil:
			return false, err
		case then == elsewhere:
			return w.move(ctx, cl)
		case then == cut:
			return false, c.censor(ctx, cl)
		case then == over:
			return false, nil
		}
	}
}
