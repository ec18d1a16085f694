package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// This file finishes samples: it appends a sample to the sink as data, as a failure or as cut, and
// journals the end of its last attempt.

// fail appends the failure of the sample to the sink, and then journals the end of its last
// attempt. If the process dies in between, the next process trusts the dataset.
func (c *Collector) fail(ctx context.Context, cl *claim, a *attempt, charged bool) error {
	err := c.append(ctx, cl, a.failed, a.class, yieldOf(a.failed))
	if cl.settled {
		err = errors.Join(err, c.journalEnd(cl, a.N, a.class, charged)) // even if this failure exceeds MaxFailures
	}
	if err != nil || cl.task.Recorded != nil { // the failure of one recorded server run does not predict the next
		return err
	}
	return c.earlyFailures.failed(cl.group, a.class, c.inFlight(), a.err)
}

// append appends the sample to the sink. class is the class of its failure, or ClassNone. y is its
// yield, which the caller counts in advance, because the sink owns s afterwards. An error ends the
// run, unless the sink refuses the content of a sample that did not fail.
func (c *Collector) append(ctx context.Context, cl *claim, s *tokenize.Sample, class Class, y Yield) error {
	key, before, took := cl.key, cl.failed, s.Duration
	accepted := c.cfg.Events.SampleFinished(s)
	tooMany := c.counters.accept(class, c.cfg.MaxFailures)
	done := func(err error) {
		c.counters.done(key, class, before, err)
		if err != nil {
			c.end(fmt.Errorf("%w: %w", ErrStorage, err))
		}
		c.cfg.Events.SampleDone(key, err)
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
		return fmt.Errorf("%w: more than %d failed", ErrTolerance, c.cfg.MaxFailures)
	}
	return nil
}

// refused reports whether err means that the sink refuses this sample because of its content.
func refused(err error) bool {
	r, ok := errors.AsType[interface {
		error
		Refused() bool
	}](err)
	return ok && r.Refused()
}

// censor appends the sample to the sink as cut, with the remaining tokens of its last attempt. If
// the tail policy cuts a sample without an attempt in this process, censor does not append it, so
// that a later run can collect it.
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
		f.Class, f.Error = ClassCensored.String(), shortened(cause.Error()+" after: "+f.Error)
	}
	return c.append(ctx, cl, a.failed, ClassCensored, yieldOf(a.failed))
}

func (c *Collector) journalEnd(cl *claim, n int, class Class, charged bool) error {
	if j := c.cfg.Journal; j != nil {
		return journaled(j.End(cl.key, n, class, charged))
	}
	return nil
}

// journalStop journals the end of an attempt that a stop cut off. If its agent can still exist, the
// attempt stays open instead, so that the next process looks for the agent.
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

// journaled wraps an error from the journal, so that it ends the run.
func journaled(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: journal: %w", ErrStorage, err)
}

// end ends the run because of err, unless err is nil.
func (c *Collector) end(err error) {
	if err != nil {
		(*c.stop.Load())(err)
	}
}
