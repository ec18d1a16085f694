package proxy

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Stats counts what a Proxy did since New.
type Stats struct {
	// Open counts the requests that engines are working on. BodyBytes is the size of held bodies.
	Open, BodyBytes int64
	// Calls counts the requests for generations. Kept and Dropped count the calls that Config.Keep
	// accepted and refused. An accepted call can still be lost; its keeper counts that.
	Calls, Kept, Dropped int64
	// Continued counts the calls whose prompt the Continuer changed. SplicesRefused counts the
	// changed calls that an engine refused and that the proxy sent again with the server's prompt,
	// by status.
	Continued      int64
	SplicesRefused map[int]int64
	// Answers counts the answers by the first digit of their status.
	Answers [6]int64
	// Unreachable counts the requests that no engine answered. Refused counts the requests after
	// Drain. Stale counts the requests that were sent again because the engine had closed the
	// connection.
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
	// Busy counts its open requests, Calls all requests sent to it, and Errors the requests without
	// an answer.
	Busy, Calls, Errors int64
}

// A Histogram counts durations.
type Histogram struct {
	// Bounds are upper bounds in seconds. Counts[i] counts the durations up to Bounds[i] and above
	// the previous bound; the last count has the durations above all bounds.
	Bounds []float64
	Counts []int64
	// Sum is the sum of all durations, in seconds.
	Sum float64
}

// Stats returns a snapshot.
func (p *Proxy) Stats() Stats {
	c := &p.stats
	c.mu.Lock()
	s := c.Stats
	s.SplicesRefused, s.Unread = maps.Clone(s.SplicesRefused), maps.Clone(s.Unread)
	s.Time.Counts, s.Continuity.Counts = slices.Clone(s.Time.Counts), slices.Clone(s.Continuity.Counts)
	c.mu.Unlock()
	s.Open, s.BodyBytes = p.Open(), p.memory.Load()
	for _, e := range p.balance.engines {
		s.Engines = append(s.Engines, EngineStats{e.name, !e.down.Load(), e.busy.Load(), e.calls.Load(), e.errors.Load()})
	}
	return s
}

// counters are the Stats that are counted when something happens.
type counters struct {
	mu sync.Mutex
	Stats
}

func newStats() Stats {
	histogram := func(bounds ...float64) Histogram {
		return Histogram{Bounds: bounds, Counts: make([]int64, len(bounds)+1)}
	}
	s := Stats{
		SplicesRefused: map[int]int64{}, Unread: map[string]int64{},
		Time:       histogram(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
		Continuity: histogram(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 1),
	}
	for _, status := range refusals {
		s.SplicesRefused[status] = 0
	}
	return s
}

func (p *Proxy) count(add func(s *Stats)) {
	p.stats.mu.Lock()
	defer p.stats.mu.Unlock()
	add(&p.stats.Stats)
}

func (h *Histogram) observe(v time.Duration) {
	i, _ := slices.BinarySearch(h.Bounds, v.Seconds())
	h.Counts[i]++
	h.Sum += v.Seconds()
}
