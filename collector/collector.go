package collector

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/collector/pace"
)

// A Collector runs the samples of tasks on workers. Run can be called only once. Each endpoint has
// its own workers, at most MaxInFlight.
type Collector struct {
	cfg           Config
	endpoints     []*endpoint
	counters      counters
	tail          tail
	earlyFailures earlyFailures
	answerPrompts answerPrompts
	relay         relay
	shares        *shares
	moveMu        sync.Mutex // guards the flags of the endpoints

	drained  context.Context //nolint:containedctx // Drain cancels it; used like a channel
	drainNow context.CancelFunc
	drain    <-chan struct{} // closed by Drain
	started  atomic.Bool
	living   atomic.Int64                            // number of endpoints that are not lost
	stop     atomic.Pointer[context.CancelCauseFunc] // ends the Run in progress
}

// New returns a Collector. New does not start any goroutine.
func New(cfg Config) (*Collector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	c := &Collector{cfg: cfg}
	c.drained, c.drainNow = context.WithCancel(context.Background())
	c.drain = c.drained.Done()
	c.relay = relay{in: make(chan claim), out: make(chan claim)}
	for _, e := range cfg.Endpoints {
		c.endpoints = append(c.endpoints, newEndpoint(c, e))
	}
	c.shares = newShares(c.endpoints)
	c.living.Store(int64(len(c.endpoints)))
	c.counters.s.ByClass = make(map[Class]int)
	c.counters.s.FailedByClass = make(map[Class]int)
	c.counters.s.Remade = make(map[string]RolloutCount)
	c.answerPrompts.known = cfg.TurnsHavePrompts
	c.counters.s.Planned = c.limited(cfg.Planned)
	return c, nil
}

func (c *Collector) limited(n int) int {
	if c.cfg.Limit > 0 {
		return min(n, c.cfg.Limit)
	}
	return n
}

// Plan sets the number of planned samples, unless that number is already higher. Include samples of
// Config.More that Run has not yet read. Otherwise the Stats of a run that ends early would not
// count these samples as Remaining.
func (c *Collector) Plan(samples int) { c.counters.planned(c.limited(samples)) }

// Run claims the samples of the tasks, group by group and in order. It stops when no task is left,
// Drain is called, ctx is done, or the run cannot continue. A run cannot continue if, for example,
// the sink fails, a server rejects the credentials, no endpoint answers any longer, or the first
// samples all fail ([EarlyFailureError]). Run records the error of a failed attempt but does not
// return it. An error from the task source is returned after the samples in flight are finished.
//
// Run reads tasks from one goroutine. Run cannot interrupt the source, so a source that waits for a
// terminal or a pipe must end by itself when the run stops. Without Config.Left, Run reads the
// tasks once, and only as workers become free. With Config.Left, Run reads the source up to three
// times. The first pass counts the samples in the dataset. The second pass sends the samples of
// groups that were begun, and the third pass sends the rest. The source must yield the same tasks
// every time. Open attempts come before all other samples, each at the endpoint where it was made.
//
// When Run returns, every goroutine that it started has returned, every agent that it opened has
// been closed, and the sink has every finished sample. The sink commits the last samples when it is
// closed. Until then, Stats counts them as Accepted. After a stop, the samples that were in flight
// stay unfinished, and a later process can collect them.
func (c *Collector) Run(ctx context.Context, tasks iter.Seq2[*Task, error]) error {
	if c.started.Swap(true) {
		return errors.New("collector: Run can be called only once")
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c.stop.Store(&stop)
	c.counters.update(func(s *Stats) { s.Started = time.Now() })

	g, ctx := errgroup.WithContext(ctx)
	finished := make(chan struct{})
	var unsettled sync.WaitGroup // counts the claims that are in a channel or held by a worker
	g.Go(func() error {
		defer close(finished)
		f := &feed{c: c, tasks: tasks, unsettled: &unsettled}
		err := f.run(ctx)
		unsettled.Wait()
		return err
	})
	defer func() {
		for _, ep := range c.endpoints {
			ep.gate.close()
		}
	}()
	base := worker{c: c, finished: finished, unsettled: &unsettled}
	if len(c.endpoints) > 1 {
		g.Go(func() error { return c.relay.run(ctx, c, finished, &unsettled) })
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

func (c *Collector) stopping(ctx context.Context) bool {
	select {
	case <-c.drain:
		return true
	default:
		return ctx.Err() != nil
	}
}

// Drain makes Run claim no more samples. Run then finishes the attempts in flight and returns.
// Samples that wait for a retry or for a permit stay unfinished. To stop at once, cancel the
// context of Run.
func (c *Collector) Drain() {
	c.drainNow()
}

// Filter declares that the samples with these keys will be committed with keep=false. Call Filter
// before the sink reports that these samples are committed. A failed sample still counts as failed.
func (c *Collector) Filter(keys ...string) { c.counters.filter(keys) }

// CommittedEarlier records that samples counted in Config.Waiting are now in a committed shard. The
// parameter committed is the number of these samples with keep=true. The parameter filtered
// contains the keys of the samples with keep=false.
func (c *Collector) CommittedEarlier(committed int, filtered ...string) {
	c.counters.addEarlier(committed, len(filtered))
	c.counters.unfilter(filtered)
}

// Stats returns a snapshot of the run. It can be called at any time, including before and after
// Run.
func (c *Collector) Stats() Stats {
	s := c.counters.snapshot(c.endpoints)
	if !c.answerPrompts.proven() {
		s.Downgraded = 0 // without prompts, the lost answers would not have improved any grade
	}
	c.skipRest(&s)
	if c.cfg.Pace != nil {
		p := c.cfg.Pace.Stats()
		s.Pace = &p
		if p.Held != pace.NotHeld {
			s.Held = max(0, s.Remaining-s.Accepted-s.InFlight)
		}
	}
	return s
}
