package collector

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An endpoint is a configured one with what is known about it.
type endpoint struct {
	Endpoint
	health   health
	gate     gate
	removals removals
	hands    atomic.Int64  // samples in the hands of its workers
	lost     chan struct{} // closed when it is given up
	pulsed   bool          // its server is asked whether it answers: see pulse

	away    flag       // it is down and another endpoint is up: samples move there
	overdue flag       // and so it is for Config.Outage
	dark    flag       // and does not answer at all
	bound   chan claim // open attempts of an earlier process here; closed after the last
}

// endpoint is the index of the endpoint with this name, or -1.
func (c *Collector) endpoint(name string) int {
	return slices.IndexFunc(c.endpoints, func(e *endpoint) bool { return e.Name == name })
}

// hands is how many samples are in the hands of workers.
func (c *Collector) hands() (n int) {
	for _, ep := range c.endpoints {
		n += int(ep.hands.Load())
	}
	return n
}

// working is how many samples can fail at the endpoint before one of them has failed
// twice.
func (e *endpoint) working() int {
	if !e.health.known() {
		return e.gate.limit() // the first failures come before all are in hand
	}
	return min(e.gate.limit(), int(e.hands.Load()))
}

// A flag is up or down. raised gives the context of a flag, which is done as soon as, and
// as long as, the flag is up.
type flag struct {
	mu   sync.Mutex
	ctx  context.Context //nolint:containedctx // it is no request's: it stands for the flag
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

// shift raises and lowers the flags that tell the samples of an endpoint whether to move
// to another. It must be called after each change of an endpoint's health.
func (c *Collector) shift() {
	c.shifting.Lock()
	defer c.shifting.Unlock()
	for _, ep := range c.endpoints {
		down, lost := ep.health.state()
		away := down && !lost && c.othersUp(ep)
		ep.away.set(away)
		if !away {
			ep.overdue.set(false)
			ep.dark.set(false)
		}
	}
}

// overdue raises the flags of an endpoint that is down for Config.Outage, where another
// one is up.
func (c *Collector) overdue(ep *endpoint, dark bool) {
	c.shifting.Lock()
	defer c.shifting.Unlock()
	if ep.away.isUp() {
		ep.overdue.set(true)
		ep.dark.set(dark)
	}
}

// othersUp reports whether another endpoint than this one works.
func (c *Collector) othersUp(but *endpoint) bool {
	for _, ep := range c.endpoints {
		if down, lost := ep.health.state(); ep != but && !down && !lost {
			return true
		}
	}
	return false
}

// answered notes that the endpoint's server lived then.
func (w *worker) answered(then time.Time) {
	if w.ep.health.answer(then) {
		w.ep.gate.goUp()
		w.c.shift()
		w.c.cfg.Events.endpointDown(w.ep.Name, nil)
	}
}

// lose gives the endpoint up, and with the last one the run.
func (w *worker) lose(cause error) error {
	close(w.ep.lost)
	w.c.shift()
	w.c.cfg.Events.endpointLost(w.ep.Name, cause)
	if w.c.living.Add(-1) == 0 {
		return fmt.Errorf("%w: no endpoint answers: %w", ErrUnavailable, cause)
	}
	return nil
}

// The bounds of a pulse.
const (
	pulseEvery  = 5 * time.Second
	pingTimeout = 10 * time.Second // a server under load may need seconds for anything
	pingAgain   = time.Second
)

// pulsed reports whether the endpoint has a pulse: it is not the only one, and its
// backend can be asked.
func (c *Collector) pulsed(ep *endpoint) bool {
	_, pings := ep.Backend.(Pinger)
	_, checks := ep.Backend.(Checker)
	return pings && checks && len(c.endpoints) > 1
}

// pulse asks the server of an endpoint whether it answers, until finished is closed:
// while it is up by a ping, and while it is down by a check, which no sample has to
// wait for. It returns the error that ends the run.
func (w *worker) pulse(ctx context.Context) error {
	for {
		if !pause(ctx, pulseEvery, w.finished, w.ep.lost) {
			return nil
		}
		down, lost := w.ep.health.state()
		switch {
		case lost:
			return nil
		case down:
			if err := w.lookFor(ctx); err != nil {
				return err
			}
		case w.ep.hands.Load() > 0:
			err := w.ping(ctx)
			if err == nil || !pause(ctx, pingAgain, w.finished, w.ep.lost) {
				continue
			}
			if err = w.ping(ctx); err == nil || ctx.Err() != nil {
				continue
			}
			if w.ep.health.silent(time.Now()) {
				w.ep.gate.goDown()
				w.c.cfg.Events.endpointDown(w.ep.Name, err)
				w.c.shift()
			}
		}
	}
}

// lookFor sees whether a server that is down is back. One that is away for
// Config.Outage is waited for no longer by what could only be had there, and where no
// other is up it is lost.
func (w *worker) lookFor(ctx context.Context) error {
	err := w.ping(ctx)
	dark := err != nil
	if !dark && w.check(ctx) {
		w.answered(time.Now())
		return nil
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the run ends
	}
	if err == nil {
		err = ErrUnavailable
	}
	late, never := w.ep.health.late(time.Now())
	if w.c.othersUp(w.ep) {
		if late {
			w.c.overdue(w.ep, dark)
		}
		return nil
	}
	if (late || never) && w.ep.health.lose() {
		return w.lose(err)
	}
	return nil
}

// ping asks once.
func (w *worker) ping(ctx context.Context) error {
	pinger, ok := w.ep.Backend.(Pinger)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err := pinger.Ping(ctx)
	if class := Classify(err); err == nil || !class.Retryable() || class == ClassRateLimited || class == ClassServerError {
		return nil // something answered
	}
	return err
}

// checkTimeout bounds a check. A server that takes longer is as good as down.
const checkTimeout = time.Minute

// check reports whether the server is known to work.
func (w *worker) check(ctx context.Context) bool {
	checker, ok := w.ep.Backend.(Checker)
	if !ok || w.ping(ctx) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, min(checkTimeout, w.c.cfg.AttemptTimeout))
	defer cancel()
	err := checker.Check(ctx, w.c.cfg.RunID)
	class := Classify(err)
	return ctx.Err() == nil && (err == nil || !class.Retryable() && !class.Fatal())
}

// pause lets d pass. It returns false where one of the channels is closed first.
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
