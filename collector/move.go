package collector

import (
	"context"
	"sync"
	"time"
)

// A flag is up or down. raised gives the context of a flag, which is done as soon as, and
// as long as, the flag is up.
type flag struct {
	mu   sync.Mutex
	ctx  context.Context //nolint:containedctx // it is no request's: it stands for the flag
	stop context.CancelFunc
}

func (f *flag) raised() context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx == nil {
		f.ctx, f.stop = context.WithCancel(context.Background())
	}
	return f.ctx
}

func (f *flag) isUp() bool { return f.raised().Err() != nil }

func (f *flag) set(up bool) {
	ctx := f.raised()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch is := ctx.Err() != nil; {
	case up && !is:
		f.stop()
	case !up && is:
		f.ctx = nil
	}
}

// shift raises and lowers the flags that tell the samples of an endpoint whether to move
// to another. It must be called after each change of an endpoint's health.
func (c *Collector) shift() {
	c.shifting.Lock()
	defer c.shifting.Unlock()
	for _, ep := range c.endpoints {
		down, lost := ep.health.state()
		away := down && !lost && c.othersUp(ep)
		ep.away.set(away)
		if !away {
			ep.overdue.set(false)
			ep.dark.set(false)
		}
	}
}

// overdue raises the flags of an endpoint that is down for Config.Outage, where another
// one is up.
func (c *Collector) overdue(ep *endpoint, dark bool) {
	c.shifting.Lock()
	defer c.shifting.Unlock()
	if ep.away.isUp() {
		ep.overdue.set(true)
		ep.dark.set(dark)
	}
}

// othersUp reports whether another endpoint than this one works.
func (c *Collector) othersUp(but *endpoint) bool {
	for _, ep := range c.endpoints {
		if down, lost := ep.health.state(); ep != but && !down && !lost {
			return true
		}
	}
	return false
}

// moves reports whether the sample is to be worked on at another endpoint. An open
// attempt stays with the server that has its agent until that is down for
// Config.Outage: only there can it be taken over. The sample that is to see whether the
// server is back stays too.
func (w *worker) moves(cl *claim) bool {
	if _, lost := w.ep.health.state(); lost {
		return true
	}
	if cl.permit != nil && cl.permit.probe {
		return false
	}
	return w.awayFor(cl).isUp()
}

// awayFor is the flag that moves the sample.
func (w *worker) awayFor(cl *claim) *flag {
	if cl.left != nil && w.reattaches(cl.left) {
		return &w.ep.overdue
	}
	return &w.ep.away
}

// pass gives the sample to whichever endpoint has room for it first.
func (w *worker) pass(ctx context.Context, cl claim) (bool, error) {
	cl.repay()
	w.ep.gate.leave(cl.permit)
	cl.passed, cl.permit, cl.streak, cl.lent, cl.offered = true, nil, nil, 0, time.Now()
	select {
	case w.c.relay.in <- cl:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// A relay holds the samples that are on their way from one endpoint to another. They are
// no more than were in flight.
type relay struct{ in, out chan claim }

// run passes samples on until finished is closed. What waits here when the run is
// drained is given back: it remains. Where the tail was cut it is cut as well, up to the
// first that the sink does not take.
func (r *relay) run(ctx context.Context, c *Collector, finished <-chan struct{}, open *sync.WaitGroup) error {
	var waiting []claim
	back := func() (err error) {
		for len(waiting) > 0 {
			cl := waiting[0]
			waiting = waiting[1:]
			w := worker{c: c, ep: c.endpoints[0]}
			if err == nil && c.cut() && ctx.Err() == nil {
				err = w.censor(ctx, &cl, cl.rest, true)
			}
			if !cl.settled {
				c.counters.giveBack(cl.failed)
			}
			open.Done() // of every one, also after an error: Run waits for it
		}
		return err
	}
	for {
		if c.stopping(ctx) {
			if err := back(); err != nil {
				return err
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
		case <-drain:
		case <-finished:
			return nil
		case <-ctx.Done():
			return back()
		}
	}
}
