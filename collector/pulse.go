package collector

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Pinger is a Backend that can say at once whether its server answers at all. Where
// there are several endpoints, one that does not answer is taken to be down although no
// attempt has failed yet: connections that hang, and servers that accept and never
// answer, would take minutes.
type Pinger interface {
	// Ping asks for something that costs the server nothing.
	Ping(ctx context.Context) error
}

// The bounds of a pulse.
const (
	pulseEvery  = 5 * time.Second
	pingTimeout = 10 * time.Second // a server under load may need seconds for anything
	pingAgain   = time.Second
)

// errMoved is the cause of an attempt that was given up because its server is down and
// another can make it.
var errMoved = fmt.Errorf("%w: it is down, and another server takes the sample", ErrUnavailable)

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

// untilMoved is ctx, which ends with errMoved when one of the flags is raised that were
// not up before. The function that it returns must be called.
func untilMoved(ctx context.Context, flags ...*flag) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var stops []func() bool
	for _, f := range flags {
		if raised := f.raised(); raised.Err() == nil {
			stops = append(stops, context.AfterFunc(raised, func() { cancel(errMoved) }))
		}
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// moved reports whether the attempt ended because its server is down.
func moved(err error) bool { return errors.Is(err, errMoved) }
