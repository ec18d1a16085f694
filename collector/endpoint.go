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
	"github.com/rollout-rl/rollout/collector/wait"
)

// An endpoint is one server of a run, with its state.
type endpoint struct {
	Endpoint
	c        *Collector
	gate     gate         // bounds the number of samples in flight
	removals removals     // bounds the time for the removal of agents
	held     atomic.Int64 // number of samples that its workers hold
	watched  bool         // watch polls the server
	fresh    chan claim   // fresh samples; unbuffered, so that each sample is either unclaimed or held by a worker
	open     chan claim   // open attempts that an earlier process made here; closed after the last one
	openDone atomic.Bool  // a worker has seen that open is closed

	mu      sync.Mutex
	breaker *breaker.Breaker // guarded by mu

	lost        chan struct{} // closed when the server is given up
	down        flag          // the breaker considers the server down
	away        flag          // the server is down and another endpoint is up: samples move there
	overdue     flag          // away, and the server has been down for longer than Config.Outage
	unreachable flag          // overdue, and the server does not answer a ping
}

func newEndpoint(c *Collector, e Endpoint) *endpoint {
	_, pings := e.Backend.(Pinger)
	_, checks := e.Backend.(Checker)
	ep := &endpoint{Endpoint: e, c: c, lost: make(chan struct{}), fresh: make(chan claim), open: make(chan claim)}
	ep.watched = pings && checks && len(c.cfg.Endpoints) > 1
	cfg := c.cfg.breaker()
	cfg.Watched, cfg.Checks = ep.watched, checks
	ep.breaker = breaker.New(cfg)
	ep.gate.max, ep.gate.watched = e.MaxInFlight, ep.watched
	ep.gate.changed = func(ch limit.Change) { c.cfg.Events.LimitChanged(e.Name, ch.From, ch.To, ch.Reason.String()) }
	if c.cfg.Adaptive {
		ep.gate.limiter = limit.New(limit.Config{Max: e.MaxInFlight, Group: c.cfg.Samples})
	}
	return ep
}

// breaker returns the breaker settings that all endpoints share.
func (c *Config) breaker() breaker.Config {
	return breaker.Config{Outage: c.Outage, Retries: c.Retries, DataRetries: c.DataRetries, BusyMax: c.BusyMax}
}

func (c *Collector) endpoint(name string) int {
	return slices.IndexFunc(c.endpoints, func(e *endpoint) bool { return e.Name == name })
}

// Answered records that the server of an endpoint has just answered a model call that the caller
// made itself. It can be called before and during Run. If the server goes down later, it is given
// up only after Config.Outage, and not at once like a server that has never answered.
func (c *Collector) Answered(endpoint string) {
	if i := c.endpoint(endpoint); i >= 0 {
		ep := c.endpoints[i]
		ch := ep.lock().Answered(time.Now())
		ep.unlock()
		_ = ep.applyChange(ch, nil) // cannot fail, because only the loss of an endpoint causes an error
	}
}

// inFlight returns the number of samples that workers hold.
func (c *Collector) inFlight() (n int) {
	for _, ep := range c.endpoints {
		n += int(ep.held.Load())
	}
	return n
}

// A flag is up or down. raised returns a context that is done once the flag is up.
type flag struct {
	mu   sync.Mutex
	ctx  context.Context //nolint:containedctx // represents the state of the flag, not a request
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

// This method derives a context that is canceled with the given cause when the flag is up. The
// caller must call the returned function.
func (f *flag) until(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(f.raised(), func() { cancel(cause) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
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

func (e *endpoint) reattaches(open *OpenAttempt) bool {
	_, ok := e.Backend.(Reattacher)
	return ok && open.Endpoint == e.Name
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

// syncGate sets the gate to the current state of the breaker. It does not rely on a Change, because
// two workers can handle their changes out of order.
func (e *endpoint) syncGate() {
	e.mu.Lock()
	defer e.mu.Unlock()
	down, _ := e.breaker.State()
	e.gate.setDown(down)
}

// applyChange applies a change in the server's state. cause is the reason why the server is down or
// lost. An error means that no endpoint is left, and ends the run.
func (e *endpoint) applyChange(ch breaker.Change, cause error) error {
	c := e.c
	if ch.Tripped || ch.Reset {
		e.syncGate()
	}
	if ch.Down {
		c.cfg.Events.EndpointDown(e.Name, cause)
	}
	if ch.Down || ch.Reset {
		c.updateMoves()
	}
	if ch.Up {
		c.cfg.Events.EndpointDown(e.Name, nil)
	}
	if !ch.Lost {
		return nil
	}
	close(e.lost)
	c.updateMoves()
	c.cfg.Events.EndpointLost(e.Name, cause)
	if c.living.Add(-1) == 0 {
		return fmt.Errorf("%w: all endpoints are down: %w", ErrUnavailable, cause)
	}
	return nil
}

// updateMoves updates the away flags, which make the samples of an endpoint move to another
// endpoint. It must be called after each change in an endpoint's state.
func (c *Collector) updateMoves() {
	c.moveMu.Lock()
	defer c.moveMu.Unlock()
	for _, ep := range c.endpoints {
		down, lost := ep.state()
		away := down && !lost && c.othersUp(ep)
		ep.away.set(away)
		if !away {
			ep.overdue.set(false)
			ep.unreachable.set(false)
		}
	}
}

// markOverdue raises the overdue flag of an endpoint that has been down for Config.Outage, if
// another endpoint is up. dark is the new value of the endpoint's unreachable flag.
func (c *Collector) markOverdue(ep *endpoint, dark bool) {
	c.moveMu.Lock()
	defer c.moveMu.Unlock()
	if ep.away.isUp() {
		ep.overdue.set(true)
		ep.unreachable.set(dark)
	}
}

func (c *Collector) othersUp(but *endpoint) bool {
	return slices.ContainsFunc(c.endpoints, func(ep *endpoint) bool {
		down, lost := ep.state()
		return ep != but && !down && !lost
	})
}

const (
	watchEvery  = 5 * time.Second
	pingTimeout = 10 * time.Second // a server under load can need seconds for any request
	pingAgain   = time.Second
)

// watch polls the server until finished is closed. If the server is up and samples are in flight
// there, watch pings it. If the server is down, watch checks it, so that no sample has to wait for
// the check. An error ends the run.
func (e *endpoint) watch(ctx context.Context, finished <-chan struct{}) error {
	for wait.For(ctx, watchEvery, finished, e.lost) {
		down, lost := e.state()
		switch {
		case lost:
			return nil
		case down:
			if err := e.probeDown(ctx); err != nil {
				return err
			}
		case e.held.Load() > 0:
			err := e.ping(ctx)
			if err == nil || !wait.For(ctx, pingAgain, finished, e.lost) {
				continue
			}
			if err = e.ping(ctx); err == nil || ctx.Err() != nil {
				continue
			}
			ch := e.lock().Silent(time.Now())
			e.unlock()
			if err := e.applyChange(ch, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// probeDown checks whether a server that is down has recovered. After Config.Outage, no sample
// waits for the server any longer, not even an open attempt. If no other server is up, the server
// is lost after Config.Outage, or at once if it has never answered.
func (e *endpoint) probeDown(ctx context.Context) error {
	err := e.ping(ctx)
	dark := err != nil
	if !dark && e.check(ctx) {
		ch := e.lock().Answered(time.Now())
		e.unlock()
		return e.applyChange(ch, nil)
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
		return e.applyChange(ch, err)
	case late:
		e.c.markOverdue(e, dark)
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

// checkTimeout bounds the time of a check. A server that takes longer counts as down.
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
