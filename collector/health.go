package collector

import (
	"sync"
	"time"
)

// health follows whether an endpoint answers at all, so that a server that is down
// does not turn the tasks into failures.
//
//	        failure × threshold               limit passed, or it never answered
//	up ─────────────────────────► down ─────────────────────────────────────► lost
//	▲                              │
//	└────────── any answer ────────┘
//
// An answer is everything that only a working server and engine can give: a
// finished rollout, a data failure, also "busy". While an endpoint is down, or has
// never answered, its failures are not held against the samples.
type health struct {
	threshold int           // failures in a row that mean down
	limit     time.Duration // how long it may be down

	mu       sync.Mutex
	answered bool // ever
	streak   int
	since    time.Time // of the streak
	lost     bool
}

// answer says that the server lives, and whether it was taken to be down.
func (h *health) answer() (wasDown bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wasDown = h.answered && h.streak >= h.threshold
	h.answered, h.streak = true, 0
	return wasDown
}

// A verdict is what a failure of the infrastructure means.
type verdict struct {
	charge   bool // the sample pays with one of its retries
	wentDown bool // this failure was the one that took the endpoint down
	lost     bool // the endpoint is given up
	wentLost bool // by this failure
}

func (h *health) failure(now time.Time) verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streak == 0 {
		h.since = now
	}
	h.streak++
	v := verdict{
		charge:   h.answered && h.streak < h.threshold,
		wentDown: h.streak == h.threshold,
	}
	if !h.lost && h.streak >= h.threshold && (!h.answered || now.Sub(h.since) >= h.limit) {
		h.lost, v.wentLost = true, true
	}
	v.lost = h.lost
	return v
}

func (h *health) state() (down, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streak >= h.threshold, h.lost
}
