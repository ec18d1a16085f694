package collector

import (
	"context"
	"sync"

	"github.com/rollout-rl/rollout/tokenize"
)

// A worker makes the attempts at samples, one sample at a time, at one endpoint.
type worker struct {
	c         *Collector
	ep        *endpoint
	crew      *crew
	at        int             // index of its endpoint
	slot      int             // index in counters.slots
	ready     bool            // counts as ready in shares
	finished  <-chan struct{} // closed when all samples are settled and no more will come
	unsettled *sync.WaitGroup
	open      <-chan claim // open attempts of this endpoint, which come first; nil after the last
	aligner   *tokenize.Aligner
}

// run works on samples until none is left. An error ends the run.
func (w *worker) run(ctx context.Context) error {
	w.aligner = tokenize.NewAligner(w.c.cfg.Align)
	if !w.ep.openDone.Load() {
		w.open = w.ep.open
	}
	for {
		cl, ok := w.claim(ctx)
		if !ok {
			w.setReady(false)
			return context.Cause(ctx) // or nil: no sample is left
		}
		w.crew.busy()
		w.setReady(false)
		moved, err := w.collect(ctx, &cl)
		if !moved {
			w.unsettled.Done()
		}
		if err != nil {
			return err
		}
		w.crew.free()
	}
}

// claim waits for a permit and then for a sample. It returns false if the run ends or the worker's
// endpoint is lost.
func (w *worker) claim(ctx context.Context) (cl claim, ok bool) {
	for {
		p := w.ep.gate.enterNow()
		if p == nil {
			w.setReady(false)
			if p = w.ep.gate.enter(ctx, false, w.finished, w.ep.lost); p == nil {
				return claim{}, false
			}
		}
		fresh, moved := w.ep.fresh, w.c.relay.out
		if w.open != nil {
			fresh, moved = nil, nil
		}
		w.setReady(fresh != nil)
		select { // a sample from another endpoint was begun, and comes first
		case cl = <-moved:
			ok = true
		default:
			select {
			case cl, ok = <-w.open:
				if !ok {
					w.open = nil
					w.ep.openDone.Store(true)
					w.ep.gate.leave(p)
					continue
				}
			case cl, ok = <-moved:
			case cl, ok = <-fresh:
			case <-p.revoked:
				continue
			case <-w.ep.lost:
			case <-w.finished:
			case <-ctx.Done():
			}
		}
		if !ok {
			w.ep.gate.leave(p)
			return claim{}, false
		}
		cl.place.ep, cl.place.permit = w.ep, p
		return cl, true
	}
}

func (w *worker) setReady(ready bool) {
	if w.ready != ready {
		w.ready = ready
		w.c.shares.setReady(w.at, ready)
	}
}

// A crew starts the workers of one endpoint. At first, one worker waits for a sample. When the last
// waiting worker gets a sample, it starts another worker, up to MaxInFlight. So memory use depends
// on the number of samples in flight.
type crew struct {
	max   int
	start func() // starts one worker

	mu      sync.Mutex
	n, idle int
}

func (c *crew) begin() {
	c.n, c.idle = 1, 1
	c.start()
}

// busy records that a worker has a sample, and starts another worker if none is waiting.
func (c *crew) busy() {
	c.mu.Lock()
	c.idle--
	more := c.idle == 0 && c.n < c.max
	if more {
		c.n++
		c.idle++
	}
	c.mu.Unlock()
	if more {
		c.start()
	}
}

// free records that a worker waits for a sample again.
func (c *crew) free() {
	c.mu.Lock()
	c.idle++
	c.mu.Unlock()
}

// newCrew returns the crew of the endpoint with index at. spawn starts a goroutine that Run waits
// for.
func (c *Collector) newCrew(ctx context.Context, at int, base worker, spawn func(func() error)) *crew {
	w := &crew{max: c.endpoints[at].MaxInFlight}
	w.start = func() {
		one := base
		one.c, one.ep, one.crew, one.at, one.slot = c, c.endpoints[at], w, at, c.counters.slot(at)
		one.setReady(true)
		spawn(func() error { return one.run(ctx) }) // an error means that the run must stop
	}
	return w
}
