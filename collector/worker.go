package collector

import (
	"context"
	"sync"

	"github.com/rollout-rl/rollout/tokenize"
)

// A worker processes samples on one endpoint, one sample at a time.
type worker struct {
	c         *Collector
	ep        *endpoint
	crew      *crew
	at        int             // index of its endpoint
	slot      int             // index in counters.slots
	ready     bool            // shares counts this worker as ready
	finished  <-chan struct{} // closed when all samples are settled and no more samples will be added
	unsettled *sync.WaitGroup
	open      <-chan claim // the endpoint's open attempts, which are claimed first; nil after the last one
	aligner   *tokenize.Aligner
}

// run claims and processes samples until none are left. If it returns an error, the whole run must
// stop.
func (w *worker) run(ctx context.Context) error {
	w.aligner = tokenize.NewAligner(w.c.cfg.Align)
	if !w.ep.openDone.Load() {
		w.open = w.ep.open
	}
	for {
		cl, ok := w.claim(ctx)
		if !ok {
			w.setReady(false)
			return context.Cause(ctx) // nil if no samples are left
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

// claim waits for a permit and then for a sample. It returns false if no samples are left, the run
// ends, or the worker's endpoint is lost.
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
		select { // prefer samples that moved here from other endpoints, because they have already been started
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
// waiting worker claims a sample, the crew starts another worker, until there are MaxInFlight
// workers. Memory use therefore depends on the number of samples in flight.
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

// busy records that a worker has claimed a sample. If no other worker is waiting, busy starts one.
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

// free records that a worker is waiting for a sample again.
func (c *crew) free() {
	c.mu.Lock()
	c.idle++
	c.mu.Unlock()
}

// newCrew returns the crew for the endpoint c.endpoints[at]. The function spawn starts a goroutine,
// and Run waits until the goroutine ends.
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
