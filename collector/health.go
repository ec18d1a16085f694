package collector

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
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
// they fail: the fault may be the sample's. Failing to create an agent always counts
// against the server. After such a failure, one successful create marks it up again.
//
// Nor do several, where the server answers something else meanwhile: when the endpoint
// goes down, and whenever a sample was let in to see whether it is back and failed, a
// check is made (see check.go). If that is answered, the failures since the last answer
// are the samples' own: they are suspects, pay for each failure from then on, and take
// no endpoint down.
//
// Threshold failures are as many as samples are worked on at a time, at least three. What
// the first of them cost the samples they get back when the endpoint goes down.
type health struct {
	limit time.Duration // how long it may be down

	mu       sync.Mutex
	answered bool    // ever
	open     bool    // the last failure was that no agent could be made
	streak   *streak // failures without an answer between them, or nil
	first    string  // key of the sample that began the streak
	servers  bool    // the streak cannot be the fault of that sample
	isDown   bool
	since    time.Time // it is down
	lost     bool
	suspects map[string]bool // keys of samples that fail where others do not
}

// A streak is a number of failures without an answer between them.
type streak struct {
	n     int
	keys  []string // of the samples that failed
	began time.Time
	down  bool          // it took the endpoint down; to be read after over
	over  chan struct{} // closed by that, or by an answer
	own   atomic.Bool   // the failures turned out to be the samples' own
}

// answer says that the server lived at the moment then, and whether it was taken to be
// down. An answer from before the first of a streak of failures, which only was worked
// on until now, says nothing about them.
func (h *health) answer(then time.Time) (wasDown bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streak != nil && !then.After(h.streak.began) {
		h.answered = true
		return false
	}
	wasDown = h.isDown
	if h.streak != nil && !h.streak.down {
		close(h.streak.over)
	}
	h.answered, h.streak, h.servers, h.isDown = true, nil, false, false
	return wasDown
}

// opened says that an agent was made, and whether that is an answer.
func (h *health) opened() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answered && h.isDown && h.open
}

// known says that the server answered before.
func (h *health) known() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answered
}

// minStreak is how many failures in a row mean down at least.
const minStreak = 3

// A verdict is what a failure of the infrastructure means.
type verdict struct {
	charge   bool    // the sample pays with one of its retries
	streak   *streak // and gets it back if this takes the endpoint down
	wentDown bool    // this failure was the one that took the endpoint down
	lost     bool    // the endpoint is given up
	wentLost bool    // by this failure
}

// failure notes that an attempt at the sample with this key failed at the stage, while
// as many samples as working are in hand, or may be worked on.
// kept says that the endpoint is not lost by that: its pulse decides.
func (h *health) failure(key string, at Stage, working int, kept bool, now time.Time) verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.suspects[key] {
		return verdict{charge: true, lost: h.lost}
	}
	if h.streak == nil {
		h.streak, h.first = &streak{began: now, over: make(chan struct{})}, key
	}
	h.streak.n++
	if !slices.Contains(h.streak.keys, key) {
		h.streak.keys = append(h.streak.keys, key)
	}
	h.open = at == StageOpen
	h.servers = h.servers || at == StageOpen || key != h.first || !h.answered
	v := verdict{streak: h.streak}
	if !h.isDown && h.servers && h.streak.n >= max(working, minStreak) {
		h.isDown, h.since, v.wentDown = true, now, true
		h.streak.down = true
		close(h.streak.over)
	}
	v.charge = h.answered && !h.isDown
	if !h.lost && !kept && h.isDown && now.Sub(h.since) >= h.limit {
		h.lost, v.wentLost = true, true
	}
	v.lost = h.lost
	return v
}

// silent says that the server does not answer at all, and reports whether it was taken
// to be up.
func (h *health) silent(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isDown || h.lost {
		return false
	}
	if h.streak == nil {
		h.streak = &streak{began: now, over: make(chan struct{})}
	}
	// Answers from before are none, and an agent that is made is one.
	h.streak.began, h.streak.down, h.open = now, true, true
	close(h.streak.over)
	h.isDown, h.since = true, now
	return true
}

// late reports whether the server is down for so long that it may be given up, and
// whether it never answered.
func (h *health) late(now time.Time) (late, never bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isDown && now.Sub(h.since) >= h.limit, h.isDown && !h.answered
}

// lose gives the endpoint up, and reports whether it was not before.
func (h *health) lose() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.lost
	h.lost = true
	return !was
}

// condemn says that a check failed too, and reports whether that is the end of an
// endpoint that never answered.
func (h *health) condemn() (wentLost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wentLost = h.isDown && !h.answered && !h.lost
	h.lost = h.lost || wentLost
	return wentLost
}

// acquit says that the server answered a check while the endpoint was taken to be
// down: what failed is to blame itself.
func (h *health) acquit() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.suspects == nil {
		h.suspects = make(map[string]bool)
	}
	if h.streak != nil {
		for _, key := range h.streak.keys {
			h.suspects[key] = true
		}
		h.streak.own.Store(true)
		if !h.streak.down {
			close(h.streak.over)
		}
	}
	h.answered, h.streak, h.servers, h.isDown = true, nil, false, false
}

func (h *health) state() (down, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isDown, h.lost
}

// suspect has the endpoint checked after a failure that took it down, or of a sample
// that was let in to see whether it is back. Where the server works, the endpoint is
// not down; where it does not, and never did, it is lost.
func (w *worker) suspect(ctx context.Context, cl *claim, v *verdict, cause error) {
	probe := cl.permit != nil && cl.permit.probe
	if v.wentDown {
		w.ep.gate.goDown()
	}
	if !v.wentDown && !probe || v.lost {
		if v.wentDown {
			w.c.cfg.Events.endpointDown(w.ep.Name, cause)
			w.c.shift()
		}
		return
	}
	if w.check(ctx) {
		w.ep.health.acquit()
		w.ep.gate.goUp()
		w.c.shift()
		v.charge = true
		if !v.wentDown {
			w.c.cfg.Events.endpointDown(w.ep.Name, nil)
		}
		return
	}
	if v.wentDown {
		w.c.cfg.Events.endpointDown(w.ep.Name, cause)
		w.c.shift()
	}
	if ctx.Err() == nil && !w.ep.pulsed && w.ep.health.condemn() {
		v.lost, v.wentLost = true, true
	}
}

// A refusals is a row of refusals by a busy server that one sample met without any other
// answer.
type refusals struct {
	since   time.Time // the first; zero: it met none
	n       int
	cleared int // of the last, those after which the server had room for a check
}

// A server that turns a sample away time and again, and right afterwards has room for
// something else, is not busy. After checkAfter refusals each one is followed by a
// check. A place may become free just then, so that it takes clearAfter of them in a row
// until the refusals are the sample's own.
const (
	checkAfter = 5
	clearAfter = 3
)

// turnedAway notes that the server is too busy for the sample, and reports whether that
// is held against it: the server is busy for longer than Config.BusyMax, or turns only
// this sample away.
func (w *worker) turnedAway(ctx context.Context, cl *claim) bool {
	r := &cl.refused
	if r.since.IsZero() {
		r.since = time.Now()
	}
	r.n++
	switch {
	case time.Since(r.since) >= w.c.cfg.BusyMax:
		return true
	case r.n < checkAfter:
		return false
	case w.check(ctx):
		r.cleared++
	default:
		r.cleared = 0
	}
	return r.cleared >= clearAfter
}

// charge holds the last attempt against the retries: for now, where it is part of a
// streak that may yet take the endpoint down.
func (cl *claim) charge(row *streak) {
	cl.charged++
	switch {
	case row == nil:
	case cl.streak == row:
		cl.lent++
	default:
		cl.streak, cl.lent = row, 1
	}
}

// repay takes back what the sample was charged in a streak that took the endpoint
// down.
func (cl *claim) repay() {
	if cl.streak == nil {
		return
	}
	select {
	case <-cl.streak.over:
		if cl.streak.down && !cl.streak.own.Load() {
			cl.charged -= cl.lent
		}
		cl.streak, cl.lent = nil, 0
	default:
	}
}

// mournFor is how long a sample without retries left waits for the verdict on its
// endpoint: the requests of a server that dies end at about the same moment, and
// answers that it gave before may be among them.
const mournFor = time.Second

// mourn waits a moment before the sample is given up, and reports whether its failures
// were those of an endpoint that went down.
func (w *worker) mourn(ctx context.Context, cl *claim, row *streak) bool {
	if row == nil {
		return false
	}
	timer := time.NewTimer(mournFor)
	defer timer.Stop()
	over := row.over
	for {
		select {
		case <-over:
			over = nil
			if !row.down {
				continue // an answer: it may be an older one
			}
		case <-timer.C:
		case <-ctx.Done():
		}
		break
	}
	if down, _ := w.ep.health.state(); !down {
		return false
	}
	cl.charged -= cl.lent
	cl.streak, cl.lent = nil, 0
	return true
}
