package collector

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// A Collector runs the samples of tasks on workers, each bound to its endpoint: as many
// as samples are in flight there, and MaxInFlight at most. It is made by New and runs
// once.
type Collector struct {
	cfg       Config
	endpoints []*endpoint
	counters  counters
	tail      tail
	barren    barren
	along     along
	relay     relay
	shifting  sync.Mutex // of the endpoints' flags

	drainOnce sync.Once
	drain     chan struct{} // closed by Drain
	started   atomic.Bool
	living    atomic.Int64                            // endpoints that are not lost
	stop      atomic.Pointer[context.CancelCauseFunc] // of the Run in progress
}

// New makes a Collector; it starts nothing.
func New(cfg Config) (*Collector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	c := &Collector{cfg: cfg, drain: make(chan struct{})}
	c.relay = relay{in: make(chan claim), out: make(chan claim)}
	c.tail.done, c.tail.rolling = make(chan struct{}), make(map[int]context.CancelCauseFunc)
	for _, e := range cfg.Endpoints {
		c.endpoints = append(c.endpoints, newEndpoint(c, e))
	}
	c.living.Store(int64(len(c.endpoints)))
	c.counters.s.ByClass = make(map[Class]int)
	c.counters.s.FailedByClass = make(map[Class]int)
	c.counters.s.Rerolls = make(map[string]Rerolls)
	c.along.known = cfg.TurnsHavePrompts
	c.counters.s.Planned = c.limited(cfg.Planned)
	return c, nil
}

func (c *Collector) limited(n int) int {
	if c.cfg.Limit > 0 {
		return min(n, c.cfg.Limit)
	}
	return n
}

// Run claims the samples of the tasks, group by group and in order, until they run
// out, Drain is called, ctx is done, or the run cannot go on: the sink fails, a
// server refuses our credentials, no endpoint answers any more, or the first samples all
// failed for a reason that the next ones would fail for too (BarrenError). A failed
// attempt is recorded, not returned; an error of the task source is returned after the
// samples in flight are finished.
//
// tasks is read from one goroutine, one task at a time. Run cannot interrupt it: a
// source that waits, for a terminal or a pipe, must end by itself when the run is to
// stop. Without Config.Left it is read once, and no further than workers are free.
// With it, tasks must yield the same tasks each time that it is ranged over: it is
// read once to its end, to count what the dataset has, and again for the groups that
// were begun, which come first, and for the rest. Of the samples with an open attempt
// it is then the endpoint of that attempt that takes them, before all others.
//
// When Run returns, every goroutine that it started has returned, every agent that
// it opened was closed, and every finished sample is with the sink. What the sink
// has not committed by then it commits when it is closed: until then Stats counts
// these samples as Accepted. After a stop the samples that were in flight remain.
func (c *Collector) Run(ctx context.Context, tasks iter.Seq2[*Task, error]) error {
	if c.started.Swap(true) {
		return errors.New("collector: Run was called before")
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c.stop.Store(&stop)
	c.counters.update(func(s *Stats) { s.Started = time.Now() })

	g, ctx := errgroup.WithContext(ctx)
	work := make(chan claim) // unbuffered: a sample is unclaimed or in a worker's hands, never between
	finished := make(chan struct{})
	var open sync.WaitGroup // claims on their way or in hands; a lost endpoint passes its own on
	g.Go(func() error {
		defer close(finished)
		f := &feed{c: c, tasks: tasks, work: work, open: &open}
		err := f.run(ctx)
		open.Wait()
		return err
	})
	defer func() {
		for _, ep := range c.endpoints {
			ep.gate.close()
		}
	}()
	base := worker{c: c, work: work, finished: finished, open: &open}
	if len(c.endpoints) > 1 {
		g.Go(func() error { return c.relay.run(ctx, c, finished, &open) })
	}
	for i, ep := range c.endpoints {
		c.newCrew(ctx, i, base, g.Go).begin()
		if ep.watched {
			g.Go(func() error { return ep.watch(ctx, finished) })
		}
	}
	if c.cfg.Tail.Kind == TailDeadline {
		timer := time.AfterFunc(c.cfg.Tail.Deadline, c.cutTail)
		defer timer.Stop()
	}
	err := g.Wait()
	if err == nil {
		c.endTail()
	}
	return err
}

// stopping says that nothing more is to be claimed.
func (c *Collector) stopping(ctx context.Context) bool {
	select {
	case <-c.drain:
		return true
	default:
		return ctx.Err() != nil
	}
}

// Drain ends claiming: Run finishes the attempts that are in flight and returns. What
// only waits, for its retry or for room, is not waited for: it remains. To stop at once,
// cancel Run's context.
func (c *Collector) Drain() {
	c.drainOnce.Do(func() { close(c.drain) })
}

// Stats is a snapshot of the run; it may be taken at any time, also before and
// after Run.
func (c *Collector) Stats() Stats {
	s := c.counters.snapshot(c.endpoints)
	if !c.along.do() {
		s.Downgraded = 0 // an answer would have been proven no better
	}
	c.skipRest(&s)
	return s
}
