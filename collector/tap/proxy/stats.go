package proxy

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Stats counts the work of a Proxy since it was created.
type Stats struct {
	// Open is the number of requests that have been accepted but not finished. BodyBytes is the
	// size of the bodies in memory.
	Open, BodyBytes int64
	// Calls counts the requests for generations. Kept counts the calls that Config.Keep accepted.
	// Dropped counts the calls that Config.Keep refused. The proxy does not count accepted calls
	// that are lost later.
	Calls, Kept, Dropped int64
	// Sessions counts the sessions that began and ended over HTTP, and their finished calls. These
	// calls are also in Calls, and in Kept or Dropped.
	Sessions SessionStats
	// Continued counts the calls whose prompt the Continuer changed, and the calls of sessions whose
	// messages were changed by Config.Continuity. SplicesRefused counts, by status, the changed
	// requests that an engine refused. In these cases, the proxy then sent the client's own request.
	// ContinuityBytes is the approximate memory of the answers that Config.Continuity keeps.
	Continued, ContinuityBytes int64
	SplicesRefused             map[int]int64
	// Answers counts the engines' answers by the first digit of their status.
	Answers [6]int64
	// Unreachable counts the requests that no engine answered. Refused counts the requests that
	// arrived after Drain. Stale counts the requests that the proxy resent because the engine had
	// closed the connection.
	Unreachable, Refused, Stale int64
	// Panics counts the panics from which the proxy recovered.
	Panics int64
	// Unread counts the bodies from which the proxy was unable to record everything, by reason (see
	// the package comment).
	Unread map[string]int64
	// Time is a histogram of the time from sending a request to the end of its answer. Continuity
	// is a histogram of the time that the decision about the changes to a prompt takes.
	Time, Continuity Histogram
	// Engines has one entry for each engine, in the order of Config.Engines.
	Engines []EngineStats
}

// SessionStats counts sessions. Kept counts the finished calls that were recorded, and Dropped the
// finished calls that could not be recorded.
type SessionStats struct{ Begun, Ended, Kept, Dropped int64 }

// EngineStats describes one engine and counts its requests.
type EngineStats struct {
	// Engine is the URL of the engine, without the user name and password.
	Engine string
	Up     bool
	// Model is the engine's name for its model. It is empty before the first successful trial. Tokens
	// is the model's context length, or 0 if it is unknown.
	Model  string
	Tokens int64
	// Busy is the number of open requests. Calls counts all requests sent to the engine. Errors
	// counts the requests that the engine did not answer.
	Busy, Calls, Errors int64
}

// A Histogram counts durations in buckets.
type Histogram struct {
	// Bounds contains the upper bounds of the buckets, in seconds. Counts[i] is the number of
	// durations that are above the previous bound and at most Bounds[i]. The last entry in Counts
	// is the number of durations above all bounds.
	Bounds []float64
	Counts []int64
	// Sum is the sum of all durations, in seconds.
	Sum float64
}

// Stats returns the current stats.
func (p *Proxy) Stats() Stats {
	c := &p.stats
	c.mu.Lock()
	s := c.Stats
	s.SplicesRefused, s.Unread = maps.Clone(s.SplicesRefused), maps.Clone(s.Unread)
	s.Time.Counts, s.Continuity.Counts = slices.Clone(s.Time.Counts), slices.Clone(s.Continuity.Counts)
	c.mu.Unlock()
	s.Open, s.BodyBytes, s.ContinuityBytes = p.Open(), p.memory.Load(), p.turns.size()
	for _, e := range p.balance.engines {
		s.Engines = append(s.Engines, e.stats())
	}
	return s
}

func (e *engine) stats() EngineStats {
	s := EngineStats{Engine: e.name, Up: !e.down.Load(), Busy: e.busy.Load(), Calls: e.calls.Load(), Errors: e.errors.Load()}
	if a := e.trial.able.Load(); a != nil {
		s.Model, s.Tokens = a.own(), a.tokens
	}
	return s
}

// counters contains the fields of Stats that are updated as events happen. Proxy.Stats computes the
// other fields.
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
