package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// moves reports whether the sample must move to another endpoint. An open attempt stays until its
// server, which alone can take it over, has been down for Config.Outage. A probe stays too.
func (w *worker) moves(cl *claim) bool {
	if _, lost := w.ep.state(); lost {
		return true
	}
	if cl.permit != nil && cl.permit.probe {
		return false
	}
	return w.awayFor(cl).isUp()
}

// awayFor returns the flag that makes the sample move.
func (w *worker) awayFor(cl *claim) *flag {
	if cl.left != nil && w.reattaches(cl.left) {
		return &w.ep.overdue
	}
	return &w.ep.away
}

// pass sends the sample to the first endpoint with room for it.
func (w *worker) pass(ctx context.Context, cl *claim) (bool, error) {
	w.ep.lock().Leave(&cl.budget)
	w.ep.unlock()
	w.ep.gate.leave(cl.permit)
	cl.passed, cl.permit, cl.queued = true, nil, time.Now()
	w.c.shares.moves(1)
	select {
	case w.c.relay.in <- *cl:
		return true, nil
	case <-ctx.Done():
		w.c.shares.moves(-1)
		return false, context.Cause(ctx)
	}
}

// A relay holds the samples that move from one endpoint to another.
type relay struct{ in, out chan claim }

// run passes samples on until finished is closed. On a drain it gives the waiting samples back:
// they remain to be done. After the tail was cut, it cuts them instead, up to the first error of
// the sink.
func (r *relay) run(ctx context.Context, c *Collector, finished <-chan struct{}, open *sync.WaitGroup) error {
	var waiting []claim
	end := func(cl claim, why error) (err error) {
		c.shares.moves(-1)
		w := worker{c: c, ep: c.endpoints[0]}
		if why != nil && ctx.Err() == nil {
			err = w.censor(ctx, &cl, true, why)
		}
		if !cl.settled {
			c.counters.giveBack(cl.failed)
		}
		open.Done() // for every sample, also after an error: Run waits for it
		return err
	}
	back := func() (err error) {
		for len(waiting) > 0 {
			cl := waiting[0]
			waiting = waiting[1:]
			var why error
			if err == nil && c.cut() {
				why = ErrCensored
			}
			err = errors.Join(err, end(cl, why))
		}
		return err
	}
	for {
		if c.stopping(ctx) {
			if err := back(); err != nil {
				return err
			}
		}
		for i := 0; i < len(waiting); i++ {
			if why := c.late(&waiting[i]); why != nil {
				cl := waiting[i]
				waiting = slices.Delete(waiting, i, i+1)
				i--
				if err := end(cl, why); err != nil {
					return errors.Join(err, back())
				}
			}
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
			c.shares.moves(-1)
		case <-c.soonest(waiting):
		case <-drain:
		case <-finished:
			return nil
		case <-ctx.Done():
			return back()
		}
	}
}

// errMoved ends an attempt whose server is down while another server can make the sample.
var errMoved = fmt.Errorf("%w: the sample moves to another server", ErrUnavailable)

func moved(err error) bool { return errors.Is(err, errMoved) }

// untilMoved returns a ctx that ends with errMoved when one of the flags is raised. A flag that is
// already up does not count. The caller must call the function.
func untilMoved(ctx context.Context, flags ...*flag) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var stops []func() bool
	for _, f := range flags {
		if raised := f.raised(); raised.Err() == nil {
			stops = append(stops, context.AfterFunc(raised, func() { cancel(errMoved) }))
		}
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}
