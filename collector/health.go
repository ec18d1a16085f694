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
//
// One sample alone does not take an endpoint down by its rollouts, however often
// they fail: the fault may be the sample's. That no agent can be made is the
// server's fault whoever asks.
type health struct {
	threshold int           // failures in a row that mean down
	limit     time.Duration // how long it may be down

	mu       sync.Mutex
	answered bool // ever
	streak   int
	first    string // key of the sample that began the streak
	servers  bool   // the streak cannot be the fault of that sample
	isDown   bool
	since    time.Time // it is down
	lost     bool
}

// answer says that the server lives, and whether it was taken to be down.
func (h *health) answer() (wasDown bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wasDown = h.answered && h.isDown
	h.answered, h.streak, h.servers, h.isDown = true, 0, false, false
	return wasDown
}

// A verdict is what a failure of the infrastructure means.
type verdict struct {
	charge   bool // the sample pays with one of its retries
	wentDown bool // this failure was the one that took the endpoint down
	lost     bool // the endpoint is given up
	wentLost bool // by this failure
}

// failure notes that an attempt at the sample with this key failed at the stage.
func (h *health) failure(key string, at Stage, now time.Time) verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streak == 0 {
		h.first = key
	}
	h.streak++
	h.servers = h.servers || at == StageOpen || key != h.first || !h.answered
	var v verdict
	if !h.isDown && h.servers && h.streak >= h.threshold {
		h.isDown, h.since, v.wentDown = true, now, true
	}
	v.charge = h.answered && !h.isDown
	if !h.lost && h.isDown && (!h.answered || now.Sub(h.since) >= h.limit) {
		h.lost, v.wentLost = true, true
	}
	v.lost = h.lost
	return v
}

func (h *health) state() (down, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isDown, h.lost
}
