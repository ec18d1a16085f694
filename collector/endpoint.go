package collector

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollout-rl/rollout/collector/breaker"
	"github.com/rollout-rl/rollout/collector/limit"
)

// An endpoint is one server of a run and its state.
type endpoint struct {
	Endpoint
	c        *Collector
	gate     gate         // bounds the samples in flight
	removals removals     // bounds the time to remove agents
	hands    atomic.Int64 // number of samples that its workers hold
	watched  bool         // watch polls the server
	work     chan claim   // fresh samples; unbuffered: a sample is either unclaimed or held by a worker
	pinned   chan claim   // open attempts of an earlier process here; closed after the last
	unpinned atomic.Bool  // a worker saw that pinned is closed

	mu      sync.Mutex
	breaker *breaker.Breaker // guarded by mu

	lost    chan struct{} // closed when the server is given up
	down    flag          // the breaker considers the server down
	away    flag          // the server is down and another endpoint is up: samples move there
	overdue flag          // away, and the server has been down for longer than Config.Outage
	dark    flag          // overdue, and the server does not answer a ping
}

func newEndpoint(c *Collector, e Endpoint) *endpoint {
	_, pings := e.Backend.(Pinger)
	_, checks := e.Backend.(Checker)
	ep := &endpoint{Endpoint: e, c: c, lost: make(chan struct{}), work: make(chan claim), pinned: make(chan claim)}
	ep.watched = pings && checks && len(c.cfg.Endpoints) > 1
	ep.breaker = breaker.New(breaker.Config{
		Outage: c.cfg.Outage, Watched: ep.watched, Checks: checks,
		Retries: c.cfg.Retries, DataRetries: c.cfg.DataRetries, BusyMax: c.cfg.BusyMax,
	})
	ep.gate.max, ep.gate.watched = e.MaxInFlight, ep.watched
	ep.gate.changed = func(ch limit.Change) { c.cfg.Events.LimitChanged(e.Name, ch.From, ch.To, ch.Reason.String()) }
	if c.cfg.Adaptive {
		ep.gate.limiter = limit.New(limit.Config{Max: e.MaxInFlight, Group: c.cfg.Samples})
	}
	return ep
}

func (c *Collector) endpoint(name string) int {
	return slices.IndexFunc(c.endpoints, func(e *endpoint) bool { return e.Name == name })
}

// Answered records that the server of an endpoint has just answered a call of the model that the
// caller made itself, before or during Run. If the server then goes down, it is given up only after
// Config.Outage, and not at once as a server that never worked.
func (c *Collector) Answered(endpoint string) {
	if i := c.endpoint(endpoint); i >= 0 {
		ep := c.endpoints[i]
		ch := ep.lock().Answered(time.Now())
		ep.unlock()
		_ = ep.follow(ch, nil) // an answer loses no endpoint
	}
}

func (c *Collector) hands() (n int) {
	for _, ep := range c.endpoints {
		n += int(ep.hands.Load())
	}
	return n
}

// A flag is up or down. raised returns a context that is done once the flag is up.
type flag struct {
	mu   sync.Mutex
	ctx  context.Context //nolint:containedctx // it stands for the flag, not for a request
	stop context.CancelFunc
}

func (f *flag) raised() context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx == nil {
		f.ctx, f.stop = context.WithCancel(context.Background())
	}
	return f.ctx
}

func (f *flag) isUp() bool { return f.raised().Err() != nil }

func (f *flag) set(up bool) {
	ctx := f.raised()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch is := ctx.Err() != nil; {
	case up && !is:
		f.stop()
	case !up && is:
		f.ctx = nil
	}
}

// lock locks the breaker and returns it. The caller must call unlock.
func (e *endpoint) lock() *breaker.Breaker {
	e.mu.Lock()
	return e.breaker
}

func (e *endpoint) unlock() {
	down, _ := e.breaker.State()
	e.down.set(down)
	e.mu.Unlock()
}

func (e *endpoint) state() (down, lost bool) {
	defer e.mu.Unlock()
	return e.lock().State()
}

// steer matches the gate to the breaker's current state, because two workers can handle changes of
// the breaker out of order.
func (e *endpoint) steer() {
	e.mu.Lock()
	defer e.mu.Unlock()
	down, _ := e.breaker.State()
	e.gate.setDown(down)
}

// follow applies a change of the server's state. cause is why the server is down or lost. An error
// ends the run: no endpoint is left.
func (e *endpoint) follow(ch breaker.Change, cause error) error {
	c := e.c
	if ch.Tripped || ch.Reset {
		e.steer()
	}
	if ch.Down {
		c.cfg.Events.EndpointDown(e.Name, cause)
	}
	if ch.Down || ch.Reset {
		c.shift()
	}
	if ch.Up {
		c.cfg.Events.EndpointDown(e.Name, nil)
	}
	if !ch.Lost {
		return nil
	}
	close(e.lost)
	c.shift()
	c.cfg.Events.EndpointLost(e.Name, cause)
	if c.living.Add(-1) == 0 {
		return fmt.Errorf("%w: all endpoints are down: %w", ErrUnavailable, cause)
	}
	return nil
}

// waitMax bounds how long a sample without retries waits to see whether its server goes down.
const waitMax = time.Second

func (e *endpoint) waitDown(ctx context.Context) {
	timer := time.NewTimer(waitMax)
	defer timer.Stop()
	select {
	case <-e.down.raised().Done():
	case <-timer.C:
	case <-ctx.Done():
	}
}

// shift updates the away flags, which move the samples of an endpoint to another one. It must be
// called after each change of an endpoint's state.
func (c *Collector) shift() {
	c.shifting.Lock()
	defer c.shifting.Unlock()
	for _, ep := range c.endpoints {
		down, lost := ep.state()
		away := down && !lost && c.othersUp(ep)
		ep.away.set(away)
		if !away {
			ep.overdue.set(false)
			ep.dark.set(false)
		}
	}
}

// overdue raises the flags of an endpoint that has been down for Config.Outage, if another is up.
func (c *Collector) overdue(ep *endpoint, dark bool) {
	c.shifting.Lock()
	defer c.shifting.Unlock()
	if ep.away.isUp() {
		ep.overdue.set(true)
		ep.dark.set(dark)
	}
}

func (c *Collector) othersUp(but *endpoint) bool {
	for _, ep := range c.endpoints {
		if down, lost := ep.state(); ep != but && !down && !lost {
			return true
		}
	}
	return false
}

const (
	watchEvery  = 5 * time.Second
	pingTimeout = 10 * time.Second // a server under load can need seconds for any request
	pingAgain   = time.Second
)

// watch polls the server until finished is closed: with a ping while it is up, and with a check
// while it is down, so that no sample waits for the check. An error ends the run.
func (e *endpoint) watch(ctx context.Context, finished <-chan struct{}) error {
	for pause(ctx, watchEvery, finished, e.lost) {
		down, lost := e.state()
		switch {
		case lost:
			return nil
		case down:
			if err := e.lookFor(ctx); err != nil {
				return err
			}
		case e.hands.Load() > 0:
			err := e.ping(ctx)
			if err == nil || !pause(ctx, pingAgain, finished, e.lost) {
				continue
			}
			if err = e.ping(ctx); err == nil || ctx.Err() != nil {
				continue
			}
			ch := e.lock().Silent(time.Now())
			e.unlock()
			if err := e.follow(ch, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookFor checks whether a server that is down is back. After Config.Outage no sample waits for it
// any longer, not even an open attempt. If no other server is up, it is then lost.
func (e *endpoint) lookFor(ctx context.Context) error {
	err := e.ping(ctx)
	dark := err != nil
	if !dark && e.check(ctx) {
		ch := e.lock().Answered(time.Now())
		e.unlock()
		return e.follow(ch, nil)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the run ends
	}
	if err == nil {
		err = ErrUnavailable
	}
	late, never := e.lock().Overdue(time.Now())
	e.unlock()
	switch {
	case !e.c.othersUp(e) && (late || never):
		ch := e.lock().Lose()
		e.unlock()
		return e.follow(ch, err)
	case late:
		e.c.overdue(e, dark)
	}
	return nil
}

func (e *endpoint) ping(ctx context.Context) error {
	pinger, ok := e.Backend.(Pinger)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err := pinger.Ping(ctx)
	if class := Classify(err); err == nil || !class.Retryable() || class == ClassRateLimited || class == ClassServerError {
		return nil // any answer counts
	}
	return err
}

// checkTimeout bounds a check. A slower server counts as down.
const checkTimeout = time.Minute

func (e *endpoint) check(ctx context.Context) bool {
	checker, ok := e.Backend.(Checker)
	if !ok || e.ping(ctx) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, min(checkTimeout, e.c.cfg.AttemptTimeout))
	defer cancel()
	err := checker.Check(ctx, e.c.cfg.RunID)
	class := Classify(err)
	return ctx.Err() == nil && (err == nil || !class.Retryable() && !class.Fatal()) // a rejection is an answer
}

// pause waits for d. It returns false if ctx or one of the channels ends the wait first.
func pause(ctx context.Context, d time.Duration, a, b <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-a:
	case <-b:
	case <-ctx.Done():
	}
	return false
}
