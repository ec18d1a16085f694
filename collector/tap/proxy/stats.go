package proxy

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Stats are what a Proxy did since New.
type Stats struct {
	// Open are the requests that are with engines, BodyBytes the bodies held of them.
	Open, BodyBytes int64
	// Calls are the requests for generations, Kept the calls that Config.Keep accepted, and
	// Dropped the calls that it refused. The keeper reports whether an accepted call can be
	// read.
	Calls, Kept, Dropped int64
	// Continued are the calls whose prompt the Continuer changed. SplicesRefused are those of
	// them whose engine refused that prompt, and was sent the server's own, by the status of
	// the refusal.
	Continued      int64
	SplicesRefused map[int]int64
	// Answers has the answers by the first digit of their status.
	Answers [6]int64
	// Unreachable are the requests that no engine answered, Refused those that came after
	// Drain, and Stale those that were sent again because the engine had closed the
	// connection.
	Unreachable, Refused, Stale int64
	// Panics are the panics of the tap's own work. No call was harmed.
	Panics int64
	// Unread are the bodies, or parts of them, that passed and say nothing, by reason.
	Unread map[string]int64
	// Time is how long engines had the calls, Continuity how long the Continuer took.
	Time, Continuity Histogram
	// Engines are the engines, as configured.
	Engines []EngineStats
}

// EngineStats are the requests of one engine.
type EngineStats struct {
	// Engine is its URL without a password.
	Engine string
	Up     bool
	// Busy are the requests that are with it, Calls those that it was given, and Errors those
	// that it did not answer.
	Busy, Calls, Errors int64
}

// A Histogram counts durations.
type Histogram struct {
	// Bounds are the upper bounds in seconds. Counts[i] are the durations up to Bounds[i] and
	// above the bound before, and the last count those above all bounds.
	Bounds []float64
	Counts []int64
	// Sum is the sum of all in seconds.
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

// spliceRefused counts a status of refusals.
func (c *counters) spliceRefused(status int) { c.splices[slices.Index(refusals[:], status)].Add(1) }

func (c *counters) answered(status int) {
	if i := status / 100; i < len(c.answers) {
		c.answers[i].Add(1)
	}
}

// unread counts a reason. Reasons are words of this package.
func (c *counters) unread(why string) {
	n, ok := c.why.Load(why)
	if !ok {
		n, _ = c.why.LoadOrStore(why, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(1) //nolint:forcetypeassert // of the line above
}

// durations count what a Histogram has.
type durations struct {
	mu     sync.Mutex
	counts [16]int64 // more than any of the bounds
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
