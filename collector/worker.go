package collector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A worker takes one sample at a time through its attempts. It is bound to its
// endpoint, so the number of workers bounds what is in flight there.
type worker struct {
	c        *Collector
	ep       *endpoint
	slot     int // its place in counters.slots
	work     chan claim
	finished <-chan struct{} // closed when no sample is open any more
	open     *sync.WaitGroup
	aligner  *tokenize.Aligner
}

// run returns nil when there is nothing left to do for this worker, and an error
// only when the whole run must stop.
func (w *worker) run(ctx context.Context) error {
	w.aligner = tokenize.NewAligner(w.c.cfg.Align)
	for {
		if _, lost := w.ep.health.state(); lost {
			return nil // one that is idle now passes the next sample on, and is here then
		}
		select {
		case cl := <-w.work:
			passed, err := w.sample(ctx, cl)
			if !passed {
				w.open.Done()
			}
			if err != nil {
				return err
			}
		case <-w.finished:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sample makes attempts until the sink has the sample or its failure. It reports
// whether it passed the sample on to another worker instead, and the error that
// ends the run.
func (w *worker) sample(ctx context.Context, cl claim) (passed bool, err error) {
	c := w.c
	c.counters.claim(w.slot, cl, w.ep.Name, time.Now())
	defer c.counters.release(w.slot)
	for {
		if err := ctx.Err(); err != nil {
			return false, context.Cause(ctx)
		}
		if _, lost := w.ep.health.state(); lost {
			return w.pass(ctx, cl) // given up while this sample waited
		}
		failed, err := w.attempt(ctx, &cl)
		class := Classify(err)
		charge := true
		switch {
		case err == nil:
			w.answered()
			return false, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx) // the sample remains
		case class.Fatal():
			return false, err
		case !class.Retryable():
			w.answered()
			return false, w.append(ctx, failed, class, gainOf(failed))
		case class == ClassRateLimited:
			w.answered()
			charge = cl.turnedAway(time.Now()) >= c.cfg.BusyMax
		case outOfTime(err):
			// A rollout that is too long says nothing about the server.
		default:
			v := w.ep.health.failure(cl.key, stageOf(err), time.Now())
			if v.wentDown {
				c.cfg.Events.endpointDown(w.ep.Name, err)
			}
			if v.wentLost {
				if err := w.lose(err); err != nil {
					return false, err
				}
			}
			if v.lost {
				return w.pass(ctx, cl)
			}
			charge = v.charge
		}
		if class != ClassRateLimited {
			cl.busySince = time.Time{}
		}
		if charge {
			cl.charged++
		}
		if cl.charged > c.cfg.Retries {
			return false, w.append(ctx, failed, class, gainOf(failed))
		}
		if err := w.wait(ctx, &cl, class, c.cfg.delay(cl.attempts, err)); err != nil {
			return false, err
		}
	}
}

// turnedAway is for how long the sample has met nothing but a busy server.
func (cl *claim) turnedAway(now time.Time) time.Duration {
	if cl.busySince.IsZero() {
		cl.busySince = now
	}
	return now.Sub(cl.busySince)
}

// answered notes that the endpoint's server lives.
func (w *worker) answered() {
	if w.ep.health.answer() {
		w.c.cfg.Events.endpointDown(w.ep.Name, nil)
	}
}

// lose gives the endpoint up, and with the last one the run.
func (w *worker) lose(cause error) error {
	close(w.ep.lost)
	w.c.cfg.Events.endpointLost(w.ep.Name, cause)
	if w.c.living.Add(-1) == 0 {
		return fmt.Errorf("%w: no endpoint answers: %w", ErrUnavailable, cause)
	}
	return nil
}

// pass gives the sample to a worker of another endpoint.
func (w *worker) pass(ctx context.Context, cl claim) (bool, error) {
	cl.passed = true
	select {
	case w.work <- cl:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// wait sleeps before a retry, unless there is to be none here.
func (w *worker) wait(ctx context.Context, cl *claim, class Class, d time.Duration) error {
	w.c.cfg.Events.retryWaiting(cl.attempt(w.c.cfg.RunID), class, d)
	w.c.counters.stage(w.slot, cl.attempts, StageWait, time.Now())
	timer, start := time.NewTimer(d), time.Now()
	defer timer.Stop()
	defer func() { cl.waited += time.Since(start) }()
	select {
	case <-timer.C:
		return nil
	case <-w.ep.lost:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// delay is the wait before the next attempt after n failed ones. Jitter is added to
// what the server asks for as well: all whom it turned away were told the same.
func (c *Config) delay(n int, err error) time.Duration {
	d := c.BackoffMin
	for i := 1; i < n && d < c.BackoffMax; i++ {
		d *= 2
	}
	d = min(d, c.BackoffMax)
	jitter := time.Duration(c.Jitter() * float64(d/2))
	d = d/2 + jitter
	if asked, ok := errors.AsType[interface {
		error
		RetryDelay() time.Duration
	}](err); ok {
		if wait := min(asked.RetryDelay(), c.RetryAfterMax); wait > 0 {
			d = max(d, wait+jitter)
		}
	}
	return d
}

// append gives a sample to the sink. class says why it failed; ClassNone is a
// sample that did not. g is what the sample adds to the counts, taken before the
// sink owns it. An error ends the run, but for the refusal of a sample that did not
// fail.
func (w *worker) append(ctx context.Context, s *tokenize.Sample, class Class, g gain) error {
	c, key := w.c, s.Key
	c.cfg.Events.sampleFinished(s)
	// Counted before Append, because done may be called before it returns.
	tooMany := c.counters.accept(class, c.cfg.MaxFailures)
	done := func(err error) {
		c.counters.done(class, err)
		if err != nil {
			(*c.stop.Load())(fmt.Errorf("%w: %w", ErrStorage, err))
		}
		c.cfg.Events.sampleDone(key, err)
	}
	if err := c.cfg.Sink.Append(ctx, s, done); err != nil {
		c.counters.refuse(class)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if class == ClassNone && refused(err) {
			return err
		}
		return fmt.Errorf("%w: %w", ErrStorage, err)
	}
	c.counters.gained(g)
	if tooMany {
		return fmt.Errorf("%w: more than %d failed", ErrTolerance, c.cfg.MaxFailures)
	}
	return nil
}
