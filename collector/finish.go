package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// The functions in this file append a finished sample to the sink and journal the end of its last
// attempt. A sample is appended as data, as a failure, or as a sample that was cut.

// fail appends the failed sample to the sink, and then journals the end of the sample's last
// attempt. If the process dies in between, the next process trusts the dataset.
func (c *Collector) fail(ctx context.Context, cl *claim, a *attempt, charged bool) error {
	err := c.append(ctx, cl, a.failed, a.class, yieldOf(a.failed))
	if cl.settled {
		err = errors.Join(err, c.journalEnd(cl, a.N, a.class, charged)) // needed even if err is ErrTolerance
	}
	if err != nil {
		return err
	}
	return c.failedEarly(cl, a)
}

// failedEarly counts a failed attempt until the run has a row. An error means that the run must end.
func (c *Collector) failedEarly(cl *claim, a *attempt) error {
	if cl.task.Recorded != nil { // recorded server runs fail independently
		return nil
	}
	return c.earlyFailures.failed(cl.key, cl.group, a.class, c.inFlight(), a.err)
}

// append appends s to the sink. The parameter class is the class of its failure, or ClassNone. The
// caller computes the yield y before the call, because the sink owns s afterward. An error from
// append ends the run, unless the sink refuses the content of a sample that did not fail, or another
// process has such a sample (ErrMoved).
func (c *Collector) append(ctx context.Context, cl *claim, s *tokenize.Sample, class Class, y Yield) error {
	key, before, took := cl.key, cl.failed, s.Duration
	accepted := c.cfg.Events.SampleFinished(s)
	tooMany := c.counters.accept(class, c.cfg.MaxFailures)
	done := func(err error) {
		c.counters.done(key, class, before, err)
		if err != nil && !errors.Is(err, ErrMoved) {
			c.end(fmt.Errorf("%w: %w", ErrStorage, err))
		}
		c.cfg.Events.SampleDone(key, err)
	}
	if err := c.cfg.Sink.Append(ctx, s, done); err != nil {
		c.counters.refuse(class)
		switch {
		case errors.Is(err, ErrMoved):
			if c.dropMoved(cl); class != ClassNone {
				return nil
			}
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if class == ClassNone && refused(err) {
			return err
		}
		return fmt.Errorf("%w: %w", ErrStorage, err)
	}
	cl.settled = true
	if accepted != nil {
		accepted()
	}
	c.counters.update(func(s *Stats) { s.add(y) })
	c.addMeasure(class, took, y.Sampled)
	if class == ClassNone {
		c.addSucceeded(1)
	}
	if y.Rows > 0 {
		c.earlyFailures.gaveRow()
	}
	if tooMany {
		return fmt.Errorf("%w: the number of failed samples exceeds %d", ErrTolerance, c.cfg.MaxFailures)
	}
	return nil
}

// refused reports whether err means that the sink refused a sample because of its content.
func refused(err error) bool {
	r, ok := errors.AsType[interface {
		error
		Refused() bool
	}](err)
	return ok && r.Refused()
}

// censor appends a sample that was cut to the sink, with the tokens that its last attempt sampled.
// If the tail policy cuts a sample that had no attempt in this process, censor appends nothing. A
// later run can then collect the sample.
func (c *Collector) censor(ctx context.Context, cl *claim) error {
	cause := cl.cut.cause()
	if cause == nil { // the clock was set back
		cause = &deadlineError{cl.cut.deadline}
	}
	a := cl.retry.last
	if a == nil && cause != ErrCensored {
		cl.retry.started = time.Now()
		a = &attempt{Attempt: cl.upcoming(c.cfg.RunID), cl: cl, stage: StageWait}
		a.failed = a.failure(nil, cause)
	}
	if a == nil || a.failed == nil {
		return nil
	}
	f := &a.failed.Failures[0]
	if f.Class != ClassCensored.String() { // the sample was waiting for a retry
		f.Class, f.Error = ClassCensored.String(), shortened(cause.Error()+"; the last attempt failed: "+f.Error)
	}
	return c.append(ctx, cl, a.failed, ClassCensored, yieldOf(a.failed))
}

func (c *Collector) journalEnd(cl *claim, n int, class Class, charged bool) error {
	if j := c.cfg.Journal; j != nil {
		return journaled(j.End(cl.key, n, class, charged))
	}
	return nil
}

// journalStop journals the end of an attempt that was interrupted because the run stopped. If the
// attempt's agent might still exist, journalStop leaves the attempt open, so that the next process
// looks for the agent.
func (c *Collector) journalStop(ctx context.Context, cl *claim, a *attempt) {
	if cl.retry.open != nil || a.agentMayExist {
		return
	}
	class := a.class
	if ctx.Err() != nil {
		class = ClassCancelled
	}
	if err := c.journalEnd(cl, a.N, class, false); err != nil {
		c.cfg.Logger.WarnContext(ctx, "cannot journal the end of an attempt", "endpoint", cl.place.ep.Name, "sample_key", cl.key, "error", err)
	}
}

// journaled wraps an error from the journal in ErrStorage, so that the error ends the run.
func journaled(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: journal: %w", ErrStorage, err)
}

func (c *Collector) end(err error) {
	if err != nil {
		(*c.stop.Load())(err)
	}
}
