package collector

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/collector/limit"
)

// A gate bounds the number of samples in flight at an endpoint. The bound is the current limit of
// the endpoint's limit.Controller. A worker needs a permit before it claims a sample. The worker
// returns the permit when the sample is done. It also returns the permit before the sample waits
// for a retry, because a waiting sample costs the server nothing.
//
//	worker                      gate
//	enter           ─────────►  waits for room
//	claim           ◄─────────  an idle permit
//	use             ─────────►  the permit has a sample
//	attempt, leave  ─────────►  room for the next worker; samples that have already begun come first
//
// While the server is down, the gate admits only probes, one every few seconds. A probe is a sample
// whose attempt shows whether the server is back. If the server is watched, the gate does not even
// admit probes. When the server is back, the gate admits a few samples at first, and then gradually
// more.
type gate struct {
	max     int
	watched bool
	changed func(limit.Change)

	reportMu sync.Mutex // held while changed runs, so that changes are reported in order; lock it before mu

	mu                     sync.Mutex
	limiter                *limit.Controller // if nil, the limit is max
	held, used             int               // number of granted permits, and number of granted permits that have a sample
	idle                   []*permit         // granted permits without a sample, latest last
	retryQueue, freshQueue []chan<- *permit  // waiting workers, longest wait first; each channel has a buffer of one
	timer                  *time.Timer       // calls admit when the gate can grant another permit
	engine                 limit.Engine      // last value passed to Collector.Engine
	engineAt               time.Time         // time at which engine was set; zero if never
	down                   bool
	probeAt                time.Time // time of the next probe while the server is down
}

// A permit lets a worker work on one sample. gate.mu guards gone and used.
type permit struct {
	revoked chan struct{} // closed when the gate revokes an idle permit
	gone    bool          // revoked or returned
	used    bool          // has a sample
	probe   bool          // the sample is a probe
}

// After a failed probe, the gate waits for probeEvery before it admits the next probe. If a probe
// has no result within probeMore, the gate admits another probe.
const (
	probeEvery = 5 * time.Second
	probeMore  = 30 * time.Second
)

// enter waits for a permit. If the parameter again is true, the permit is for a sample that has
// already begun. Otherwise, the permit is for a fresh sample. enter returns nil if ctx ends or one
// of the channels is closed. At most three channels are allowed.
func (g *gate) enter(ctx context.Context, again bool, closed ...<-chan struct{}) *permit {
	got := make(chan *permit, 1) // buffered, so that the gate does not block
	g.mu.Lock()
	if again {
		g.retryQueue = append(g.retryQueue, got)
	} else {
		g.freshQueue = append(g.freshQueue, got)
	}
	g.admit(time.Now())
	g.mu.Unlock()
	var ends [3]<-chan struct{}
	copy(ends[:], closed)
	select {
	case p := <-got:
		return p
	case <-ends[0]:
	case <-ends[1]:
	case <-ends[2]:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	same := func(o chan<- *permit) bool { return o == got }
	g.retryQueue, g.freshQueue = slices.DeleteFunc(g.retryQueue, same), slices.DeleteFunc(g.freshQueue, same)
	select {
	case p := <-got: // a permit was granted at the same moment
		g.returnPermit(p, time.Now())
	default:
	}
	return nil
}

// enterNow returns a permit for a fresh sample, or nil if no permit is available now.
func (g *gate) enterNow() *permit {
	got := make(chan *permit, 1)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.freshQueue = append(g.freshQueue, got)
	g.admit(time.Now())
	select {
	case p := <-got:
		return p
	default:
		g.freshQueue = g.freshQueue[:len(g.freshQueue)-1]
		return nil
	}
}

// The method use assigns the permit to a sample. It returns false if the permit has been revoked,
// or if the limit has fallen and no longer allows the permit.
func (g *gate) use(p *permit) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.gone || p.used {
		return p.used
	}
	now := time.Now()
	if open, _ := g.open(now); g.held > open && !p.probe {
		g.returnPermit(p, now)
		return false
	}
	g.idle = slices.DeleteFunc(g.idle, func(o *permit) bool { return o == p })
	p.used = true
	g.used++
	return true
}

func (g *gate) leave(p *permit) {
	if p == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.returnPermit(p, time.Now())
}

func (g *gate) returnPermit(p *permit, now time.Time) {
	if p.gone {
		return
	}
	g.drop(p)
	if p.probe {
		g.probeAt = now.Add(probeEvery)
	}
	g.admit(now)
}

func (g *gate) drop(p *permit) {
	p.gone = true
	g.held--
	if p.used {
		g.used--
		return
	}
	g.idle = slices.DeleteFunc(g.idle, func(o *permit) bool { return o == p })
}

// The method open returns the maximum number of granted permits, and the time at which this maximum
// grows.
func (g *gate) open(now time.Time) (int, time.Time) {
	if g.limiter == nil {
		return g.max, time.Time{}
	}
	return g.limiter.Open(now)
}

func (g *gate) admit(now time.Time) {
	open, next := g.open(now)
	for len(g.retryQueue)+len(g.freshQueue) > 0 {
		if g.down {
			if g.watched {
				next = time.Time{}
				break
			}
			if next = g.probeAt; now.Before(next) {
				break
			}
			g.probeAt = now.Add(probeMore)
		} else if g.held >= open {
			if len(g.retryQueue) == 0 || len(g.idle) == 0 {
				break
			}
			g.revoke(g.idle[len(g.idle)-1])
		}
		p := &permit{revoked: make(chan struct{}), probe: g.down}
		g.held++
		from := &g.freshQueue
		if len(g.retryQueue) > 0 {
			from, p.used = &g.retryQueue, true
			g.used++
		} else {
			g.idle = append(g.idle, p)
		}
		(*from)[0] <- p
		*from = slices.Delete(*from, 0, 1)
	}
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	if len(g.retryQueue)+len(g.freshQueue) > 0 && next.After(now) {
		g.timer = time.AfterFunc(next.Sub(now), func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.admit(time.Now())
		})
	}
}

func (g *gate) revoke(p *permit) {
	g.drop(p)
	close(p.revoked)
}

// setDown records whether the server is down. If the server goes down, setDown revokes all idle
// permits.
func (g *gate) setDown(down bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.down == down {
		return
	}
	now := time.Now()
	g.down = down
	switch {
	case down:
		g.probeAt = now.Add(probeEvery)
		for len(g.idle) > 0 {
			g.revoke(g.idle[0])
		}
	case g.limiter != nil:
		g.limiter.Reopen(now)
	}
	g.admit(now)
}

// report calls the function what with the controller, the time and the number of samples in flight.
// If that call changes the limit, report then calls changed.
func (g *gate) report(what func(c *limit.Controller, now time.Time, used int) limit.Change) {
	g.reportMu.Lock()
	defer g.reportMu.Unlock()
	g.mu.Lock()
	if g.limiter == nil || g.down {
		g.mu.Unlock()
		return
	}
	ch := what(g.limiter, time.Now(), g.used)
	g.mu.Unlock() // a changed limit takes effect when a sample leaves, because leave calls admit
	if ch.Made() {
		g.changed(ch)
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
	}
}

func (g *gate) maxGain() *limit.Gain {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.limiter == nil {
		return nil
	}
	if gain, ok := g.limiter.MaxGain(); ok {
		return &gain
	}
	return nil
}

func (g *gate) limit() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.limiter == nil {
		return g.max
	}
	return g.limiter.Limit()
}

func (g *gate) lastEngine() (limit.Engine, time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.engine, g.engineAt
}

// attemptEnded reports the end of an attempt to the controller, as a signal about the server's capacity.
func (g *gate) attemptEnded(key string, class Class, err error) {
	g.report(func(c *limit.Controller, now time.Time, used int) limit.Change {
		switch class {
		case ClassRateLimited:
			return c.Refused(now, key, limit.RateLimited)
		case ClassUnavailable:
			return c.Refused(now, key, limit.Unavailable)
		case ClassConnection:
			if errors.Is(err, syscall.ECONNREFUSED) {
				return c.Refused(now, key, limit.Connection)
			}
			return c.Lost(now, key)
		case ClassServerError, ClassAborted: // an engine also aborts calls when it runs out of memory
			return c.Faulted(now, key, used, true)
		case ClassTimeoutTotal, ClassTimeoutIdle:
			return c.Faulted(now, key, used, false)
		case ClassNoCalls, ClassLost, ClassCancelled, ClassCensored, ClassInternal, ClassAuth, ClassUnusable, ClassStorage:
			return limit.Change{} // no signal
		default:
			return c.Done(now, used)
		}
	})
}

// Engine reports the result of a successful poll of the engine behind an endpoint. The method is
// safe for concurrent use.
func (c *Collector) Engine(endpoint string, e limit.Engine) {
	if i := c.endpoint(endpoint); i >= 0 {
		g := &c.endpoints[i].gate
		g.mu.Lock()
		g.engine, g.engineAt = e, time.Now()
		g.mu.Unlock()
		g.report(func(l *limit.Controller, now time.Time, _ int) limit.Change { return l.Polled(now, e) })
	}
}
