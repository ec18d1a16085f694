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
// endpoint, so the number of workers, which its crew bounds, bounds what is in flight
// there.
type worker struct {
	c        *Collector
	ep       *endpoint
	crew     *crew
	slot     int // its place in counters.slots
	work     chan claim
	finished <-chan struct{} // closed when no sample is open any more
	open     *sync.WaitGroup
	bound    <-chan claim // what was left here, which comes first; nil after the last
	aligner  *tokenize.Aligner
}

// run returns nil when there is nothing left to do for this worker, and an error
// only when the whole run must stop.
func (w *worker) run(ctx context.Context) error {
	w.aligner = tokenize.NewAligner(w.c.cfg.Align)
	w.bound = w.ep.bound
	for {
		cl, ok := w.claim(ctx)
		if !ok {
			return context.Cause(ctx) // or nil: there is nothing left to do
		}
		w.crew.took()
		passed, err := w.sample(ctx, cl)
		if !passed {
			w.open.Done()
		}
		if err != nil {
			return err
		}
		w.crew.back()
	}
}

// sample makes attempts until the sink has the sample or its failure. It reports
// whether it passed the sample on to another worker instead, and the error that
// ends the run.
func (w *worker) sample(ctx context.Context, cl claim) (passed bool, err error) {
	c := w.c
	c.counters.claim(w.slot, cl, w.ep.Name, time.Now())
	w.ep.hands.Add(1)
	defer w.ep.hands.Add(-1)
	defer func() { w.ep.gate.leave(cl.permit) }()
	var last error // of its last attempt
	endSpan := func(error) {}
	defer func() {
		if !passed && !cl.settled {
			c.counters.giveBack(cl.failed)
		}
		c.counters.release(w.slot)
		endSpan(last)
	}()
	failed := cl.rest // what its last attempt left
	cl.rest = nil
	spanned := false
	for since := cl.offered; ; since = time.Now() {
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case c.cut():
			return false, w.censor(ctx, &cl, failed, true)
		case c.stopping(ctx):
			return false, nil // it remains
		case w.moves(&cl):
			cl.rest = failed
			return w.pass(ctx, cl)
		}
		if err := w.room(ctx, &cl, since); err != nil {
			return false, err
		}
		if cl.permit == nil {
			continue // the run ends, or its server is down
		}
		if !spanned {
			ctx, endSpan = span(ctx, c.cfg.Events.SampleSpan, cl.upcoming(c.cfg.RunID), w.ep.Name) //nolint:fatcontext // once
			spanned = true
		}
		failed, err = w.attempt(ctx, &cl)
		last = err
		class, a := Classify(err), cl.attempt(c.cfg.RunID)
		if ctx.Err() == nil && class != ClassRateLimited {
			w.ep.gate.heed(cl.key, class, err)
		}
		if class != ClassRateLimited {
			cl.refused = refusals{}
		}
		charge := true
		var row *streak // of failures of the server that this one is part of
		switch {
		case err == nil:
			w.answered(cl.replied)
			return false, nil
		case ctx.Err() != nil:
			w.stopped(ctx, &cl, ClassCancelled)
			return false, context.Cause(ctx) // the sample remains
		case class.Fatal():
			w.stopped(ctx, &cl, class)
			return false, err
		case class == ClassCensored:
			return false, w.censor(ctx, &cl, failed, false)
		case cl.kind == KindReattach && (class == ClassLost || stageOf(err) == StageOpen && !class.Retryable()):
			// A refusal to look for it is none of a new attempt.
			w.answered(time.Now())
			if err := w.gone(&cl, a.N, err); err != nil {
				return false, err
			}
			continue
		case class.Rerollable() && cl.rerolled < c.cfg.DataRetries:
			w.answered(time.Now())
			cl.rerolled++
			if err := w.retry(&cl, class, true); err != nil {
				return false, err
			}
			continue
		case !class.Retryable():
			w.answered(time.Now())
			if err := w.fail(ctx, &cl, failed, class, false); err != nil {
				return false, err
			}
			return false, c.barren.failed(cl.group, class, c.hands(), err)
		case isRecallError(err):
			w.answered(cl.replied) // the rollout came to its end: only its answer was lost
		case class == ClassRateLimited:
			w.answered(time.Now())
			charge = w.turnedAway(ctx, &cl)
			if cl.refused.cleared == 0 { // else there was room
				w.ep.gate.heed(cl.key, class, err)
			}
		case moved(err):
			charge = false
		case outOfTime(err):
			// A rollout that is too long says nothing about the server.
		default:
			v := w.ep.health.failure(cl.key, stageOf(err), w.ep.working(), w.ep.pulsed, time.Now())
			cl.repay()
			row = v.streak
			w.suspect(ctx, &cl, &v, err)
			if v.wentLost {
				if err := w.lose(err); err != nil {
					w.stopped(ctx, &cl, class)
					return false, err
				}
			}
			if v.lost {
				if err := w.retry(&cl, class, false); err != nil {
					return false, err
				}
				cl.rest = failed
				return w.pass(ctx, cl)
			}
			charge = v.charge
		}
		if charge {
			cl.charge(row)
		}
		if cl.charged > c.cfg.Retries && w.mourn(ctx, &cl, row) {
			charge = false
		}
		if cl.charged > c.cfg.Retries && cl.kind == KindReattach && stageOf(err) == StageOpen {
			if err := w.gone(&cl, a.N, err); err != nil { // it could not even be looked for
				return false, err
			}
			continue
		}
		if cl.charged > c.cfg.Retries {
			return false, w.fail(ctx, &cl, failed, class, charge)
		}
		if err := w.retry(&cl, class, charge); err != nil {
			return false, err
		}
		if w.moves(&cl) || c.stopping(ctx) {
			continue
		}
		if err := w.wait(ctx, &cl, a, err, c.cfg.delay(cl.tries, err)); err != nil {
			return false, err
		}
	}
}

// fail gives the failure of the sample to the sink, and then notes the end of its last
// attempt: where the process dies in between, the dataset knows better.
func (w *worker) fail(ctx context.Context, cl *claim, failed *tokenize.Sample, class Class, charged bool) error {
	err := w.append(ctx, cl, failed, class, gainOf(failed))
	if !cl.settled {
		return err
	}
	return errors.Join(err, w.end(cl, class, charged)) // also where it was one failure too many
}

// retry notes the end of an attempt before another one. An attempt that is still to be
// taken over has none: the server did not let us see it yet.
func (w *worker) retry(cl *claim, class Class, charged bool) error {
	if cl.left != nil {
		return nil
	}
	if class.Retryable() && cl.took > 0 {
		w.c.counters.rerolled(cl, class)
	}
	cl.kind = kindAfter(class, cl.attempts)
	return w.end(cl, class, charged)
}

// stopped notes the end of an attempt that a stop of the run cut off, unless its agent
// may live: then the next process looks for it. So does one that finds no note.
func (w *worker) stopped(ctx context.Context, cl *claim, class Class) {
	if cl.left != nil || cl.alive {
		return
	}
	if err := w.end(cl, class, false); err != nil {
		w.c.cfg.Logger.WarnContext(ctx, "end of attempt not noted", "endpoint", w.ep.Name, "sample_key", cl.key, "error", err)
	}
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

// wait sleeps for d after attempt a failed with err; it returns early where the sample
// moves or the run is drained. For the first second the sample keeps its permit, so that
// a server that turns all away is not offered one sample after the other.
func (w *worker) wait(ctx context.Context, cl *claim, a Attempt, err error, d time.Duration) error {
	w.c.cfg.Events.retryWaiting(a, err, d)
	w.c.counters.stage(w.slot, a.N, StageWait, time.Now())
	start := time.Now()
	defer func() { cl.waited += time.Since(start) }()
	moment := min(d, time.Second)
	if err := w.sleep(ctx, cl, moment); err != nil {
		return err
	}
	w.ep.gate.leave(cl.permit)
	cl.permit = nil
	return w.sleep(ctx, cl, d-moment)
}

// sleep lets d pass, unless the sample moves or the run is drained.
func (w *worker) sleep(ctx context.Context, cl *claim, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-w.ep.lost:
		return nil
	case <-w.awayFor(cl).raised().Done():
		return nil
	case <-w.c.drain:
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

// append gives the sample of the claim to the sink. class says why it failed;
// ClassNone is a sample that did not. g is what the sample adds to the counts, taken
// before the sink owns it. An error ends the run, but for the refusal of a sample that did not
// fail.
func (w *worker) append(ctx context.Context, cl *claim, s *tokenize.Sample, class Class, g gain) error {
	c, key, before, took := w.c, cl.key, cl.failed, s.Duration
	c.cfg.Events.sampleFinished(s)
	// Counted before Append, because done may be called before it returns.
	tooMany := c.counters.accept(class, c.cfg.MaxFailures)
	done := func(err error) {
		c.counters.done(class, before, err)
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
	cl.settled = true
	c.counters.gained(g)
	c.measured(class, took, g.sampled)
	if class == ClassNone {
		c.wellDone(1)
	}
	if g.rows > 0 {
		c.barren.gaveRow()
	}
	if tooMany {
		return fmt.Errorf("%w: more than %d failed", ErrTolerance, c.cfg.MaxFailures)
	}
	return nil
}
