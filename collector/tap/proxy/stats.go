package proxy

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Stats counts what a Proxy did since New.
type Stats struct {
	// Open counts the requests that engines are working on. BodyBytes is the size of held bodies.
	Open, BodyBytes int64
	// Calls counts the requests for generations. Kept and Dropped count the calls that Config.Keep
	// accepted and refused. An accepted call can still be lost; its keeper counts that.
	Calls, Kept, Dropped int64
	// Continued counts the calls whose prompt the Continuer changed. SplicesRefused counts those
	// that an engine refused and that were sent again with the server's prompt, by status.
	Continued      int64
	SplicesRefused map[int]int64
	// Answers counts the answers by the first digit of their status.
	Answers [6]int64
	// Unreachable counts the requests that no engine answered, Refused those after Drain, and Stale
	// those that were sent again because the engine had closed the connection.
	Unreachable, Refused, Stale int64
	// Panics counts the recovered panics of the tap. They harmed no call.
	Panics int64
	// Unread counts the bodies that passed unread, by reason.
	Unread map[string]int64
	// Time is how long engines worked on calls. Continuity is how long the Continuer took.
	Time, Continuity Histogram
	// Engines has one entry for each engine, in the order of Config.Engines.
	Engines []EngineStats
}

// EngineStats counts the requests of one engine.
type EngineStats struct {
	// Engine is the URL without a password.
	Engine string
	Up     bool
	// Busy counts its open requests, Calls all requests sent to it, Errors those without an answer.
	Busy, Calls, Errors int64
}

// A Histogram counts durations.
type Histogram struct {
	// Bounds are upper bounds in seconds. Counts[i] counts the durations up to Bounds[i] and above
	// the previous bound; the last count has those above all bounds.
	Bounds []float64
	Counts []int64
	// Sum is the sum of all durations, in seconds.
	Sum float64
}

// Stats returns a snapshot.
func (p *Proxy) Stats() Stats {
	c := &p.stats
	s := Stats{
		Open: p.Open(), BodyBytes: p.memory.Load(), Calls: c.calls.Load(), Kept: c.kept.Load(), Dropped: c.dropped.Load(), Continued: c.continued.Load(),
		Unreachable: c.unreachable.Load(), Refused: c.refused.Load(), Stale: c.stale.Load(), Panics: c.panics.Load(),
		SplicesRefused: map[int]int64{}, Unread: map[string]int64{}, Time: c.time.snapshot(timeBounds), Continuity: c.continuity.snapshot(continuityBounds),
	}
	for i := range s.Answers {
		s.Answers[i] = c.answers[i].Load()
	}
	c.why.Range(func(why, n any) bool {
		s.Unread[why.(string)] = n.(*atomic.Int64).Load() //nolint:forcetypeassert // of counters.unread
		return true
	})
	for i, status := range refusals {
		s.SplicesRefused[status] = c.splices[i].Load()
	}
	for _, e := range p.balance.engines {
		s.Engines = append(s.Engines, EngineStats{e.name, !e.down.Load(), e.busy.Load(), e.calls.Load(), e.errors.Load()})
	}
	return s
}

// The bounds of the histograms, in seconds.
var (
	timeBounds       = []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300}
	continuityBounds = []float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 1}
)

type counters struct {
	calls, kept, dropped, continued, unreachable, refused, stale, panics atomic.Int64
	answers                                                              [6]atomic.Int64
	splices                                                              [len(refusals)]atomic.Int64
	why                                                                  sync.Map // reason → *atomic.Int64
	time, continuity                                                     durations
}

func (c *counters) spliceRefused(status int) { c.splices[slices.Index(refusals[:], status)].Add(1) }

func (c *counters) answered(status int) {
	if i := status / 100; i < len(c.answers) {
		c.answers[i].Add(1)
	}
}

func (c *counters) unread(why string) {
	n, ok := c.why.Load(why)
	if !ok {
		n, _ = c.why.LoadOrStore(why, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(1) //nolint:forcetypeassert // of the line above
}

// durations collects the counts of a Histogram.
type durations struct {
	mu     sync.Mutex
	counts [16]int64 // more than the bounds of any histogram
	sum    time.Duration
}

func (d *durations) observe(v time.Duration, bounds []float64) {
	i, _ := slices.BinarySearch(bounds, v.Seconds())
	d.mu.Lock()
	d.counts[i]++
	d.sum += v
	d.mu.Unlock()
}

func (d *durations) snapshot(bounds []float64) Histogram {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Histogram{bounds, slices.Clone(d.counts[:len(bounds)+1]), d.sum.Seconds()}
}
