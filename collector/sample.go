package collector

import (
	"context"
	"errors"
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
	settled bool // the sample or its failure is in the sink, or another process has the sample
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
		if then == try && c.cfg.Admit != nil {
			ok, err := c.admit(ctx, cl)
			switch {
			case err != nil:
				return false, err
			case cl.settled:
				return false, nil
			case !ok:
				continue // acquire returns the reason
			}
		}
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

// admit waits until Config.Admit allows the next attempt. It returns false if the sample is cut or the
// run is drained first. If another process has the sample, admit settles the sample. An error ends the
// run.
func (c *Collector) admit(ctx context.Context, cl *claim) (bool, error) {
	until, stop := cl.cut.context(ctx)
	defer stop()
	until, cancel := context.WithCancel(until)
	defer cancel()
	defer context.AfterFunc(c.drained, cancel)()
	err := c.cfg.Admit(until, cl.upcoming(c.cfg.RunID))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrMoved):
		c.dropMoved(cl)
		return false, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case until.Err() != nil:
		return false, nil
	}
	return false, err
}

// dropMoved drops a sample that another process has.
func (c *Collector) dropMoved(cl *claim) {
	cl.settled = true
	c.counters.update(func(s *Stats) { s.Moved++ })
}
