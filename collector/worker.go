package collector

import (
	"context"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A worker takes samples through their attempts, one at a time, at one endpoint.
type worker struct {
	c        *Collector
	ep       *endpoint
	crew     *crew
	at       int             // index of its endpoint
	slot     int             // index in counters.slots
	ready    bool            // counts as ready in shares
	finished <-chan struct{} // closed when no sample is open any more
	open     *sync.WaitGroup
	pinned   <-chan claim // open attempts of this endpoint, which come first; nil after the last
	aligner  *tokenize.Aligner
}

// run works on samples until none is left. An error ends the run.
func (w *worker) run(ctx context.Context) error {
	w.aligner = tokenize.NewAligner(w.c.cfg.Align)
	if !w.ep.unpinned.Load() {
		w.pinned = w.ep.pinned
	}
	for {
		cl, ok := w.claim(ctx)
		if !ok {
			w.setReady(false)
			return context.Cause(ctx) // or nil: no sample is left
		}
		w.crew.took()
		w.setReady(false)
		passed, err := w.sample(ctx, &cl)
		if !passed {
			w.open.Done()
		}
		if err != nil {
			return err
		}
		w.crew.back()
	}
}

// claim waits for a permit and then for a sample. It returns false if the run ends, or its endpoint
// is lost.
func (w *worker) claim(ctx context.Context) (claim, bool) {
	for {
		p := w.ep.gate.enterNow()
		if p == nil {
			w.setReady(false)
			if p = w.ep.gate.enter(ctx, false, w.finished, w.ep.lost); p == nil {
				return claim{}, false
			}
		}
		work, moved := w.ep.work, w.c.relay.out
		if w.pinned != nil {
			work, moved = nil, nil
		}
		w.setReady(work != nil)
		var cl claim
		ok := false
		select { // a sample from another endpoint was begun, and comes first
		case cl = <-moved:
			cl.permit = p
			return cl, true
		default:
		}
		select {
		case cl, ok = <-w.pinned:
			if !ok {
				w.pinned = nil
				w.ep.unpinned.Store(true)
				w.ep.gate.leave(p)
				continue
			}
		case cl, ok = <-moved:
		case cl, ok = <-work:
		case <-p.taken:
			continue
		case <-w.ep.lost:
		case <-w.finished:
		case <-ctx.Done():
		}
		if !ok {
			w.ep.gate.leave(p)
			return claim{}, false
		}
		cl.permit = p
		return cl, true
	}
}

func (w *worker) setReady(ready bool) {
	if w.ready != ready {
		w.ready = ready
		w.c.shares.is(w.at, ready)
	}
}

// room waits until the sample has a permit here, and returns try. Otherwise the sample must not be
// worked on here any longer. An error ends the run.
func (w *worker) room(ctx context.Context, cl *claim) (next, error) {
	away := w.awayFor(cl).raised().Done()
	until, stop := w.c.untilDeadline(ctx, cl.task)
	defer stop()
	for since := cl.queued; ; {
		switch {
		case ctx.Err() != nil:
			return over, context.Cause(ctx)
		case w.c.cut():
			return over, w.censor(ctx, cl, true, ErrCensored)
		case w.c.late(cl) != nil:
			return over, w.censor(ctx, cl, true, w.c.late(cl))
		case w.c.stopping(ctx):
			return over, nil // it remains
		case w.moves(cl):
			return elsewhere, nil
		case cl.permit != nil && w.ep.gate.use(cl.permit):
			waited := time.Since(since)
			cl.admission += waited
			w.c.counters.update(func(s *Stats) { s.AdmissionWait += waited })
			return try, nil
		}
		if cl.permit = w.ep.gate.enter(until, true, w.ep.lost, w.c.drain, away); cl.permit == nil {
			since, away = time.Now(), w.awayFor(cl).raised().Done()
		}
	}
}

// A crew is the workers of one endpoint. One worker waits for a sample. When it gets one, it makes
// the next worker, up to MaxInFlight. So memory follows the samples in flight.
type crew struct {
	most  int
	start func() // starts one worker

	mu      sync.Mutex
	n, idle int
}

func (c *crew) begin() {
	c.n, c.idle = 1, 1
	c.start()
}

// took records that a worker has a sample, and starts another one if none is waiting.
func (c *crew) took() {
	c.mu.Lock()
	c.idle--
	more := c.idle == 0 && c.n < c.most
	if more {
		c.n++
		c.idle++
	}
	c.mu.Unlock()
	if more {
		c.start()
	}
}

// back records that a worker waits for a sample again.
func (c *crew) back() {
	c.mu.Lock()
	c.idle++
	c.mu.Unlock()
}

// newCrew makes the crew of endpoint at. Run waits for goroutines of spawn.
func (c *Collector) newCrew(ctx context.Context, at int, base worker, spawn func(func() error)) *crew {
	w := &crew{most: c.endpoints[at].MaxInFlight}
	w.start = func() {
		one := base
		one.c, one.ep, one.crew, one.at, one.slot = c, c.endpoints[at], w, at, c.counters.slot(at)
		one.setReady(true)
		spawn(func() error { return one.run(ctx) }) // non-nil only if the run must stop
	}
	return w
}
