package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/collector/breaker"
	"github.com/rollout-rl/rollout/tokenize"
)

// A sample is one repetition of a task. It is immutable.
type sample struct {
	task      *Task
	group     string
	key       string
	index     int
	groupSize int
	failed    Class // class of its failure row, if it is retried
}

// A claim is a sample that a worker holds, or that is on its way to a worker.
type claim struct {
	sample
	budget breaker.Budget

	last  *attempt     // of this process, or nil
	left  *OpenAttempt // open attempt of an earlier process to take over, or nil
	n     int          // number of the last attempt, over all processes
	tries int          // number of attempts by this process
	kind  Kind         // kind of the next attempt, if left is nil

	permit    *permit       // nil while it waits for one
	queued    time.Time     // when its wait for room began
	admission time.Duration // wait for room before the next attempt
	backoff   time.Duration // total wait between attempts
	started   time.Time     // start of its first attempt; zero before that
	passed    bool          // another endpoint passed it on
	begun     bool          // an earlier process began its group
	settled   bool          // the sink has it
}

func (cl *claim) numbered(runID string, n int, kind Kind) Attempt {
	return Attempt{Task: cl.task, Key: cl.key, Index: cl.index, GroupSize: cl.groupSize, N: n, Kind: kind, RunID: runID}
}

// upcoming returns the next attempt: the open attempt to take over, or a new one.
func (cl *claim) upcoming(runID string) Attempt {
	if cl.left != nil {
		return cl.numbered(runID, cl.left.N, KindReattach)
	}
	return cl.numbered(runID, cl.n+1, cl.kind)
}

// kindAfter returns the kind of the attempt after n others, the last of which failed with class.
func kindAfter(class Class, n int) Kind {
	switch {
	case n == 0:
		return KindFirst
	case class.DataRetryable():
		return KindDataRetry
	}
	return KindInfraRetry
}

// A next is what a worker does next with its sample.
type next uint8

const (
	try       next = iota // make an attempt, the first or another
	elsewhere             // pass the sample on to another endpoint
	over                  // nothing: the sink has the sample, or it remains to be done
)

// sample makes attempts until the sink has the sample or its failure, or passes it on to another
// endpoint. An error ends the run.
func (w *worker) sample(ctx context.Context, cl *claim) (passed bool, err error) {
	w.take(cl)
	defer func() { w.release(cl, passed) }()
	endSpan := func(error) {}
	for first := true; ; first = false {
		then, err := w.room(ctx, cl)
		if then == try {
			if first {
				ctx, endSpan = w.c.cfg.Events.SampleSpan(ctx, cl.upcoming(w.c.cfg.RunID), w.ep.Name) //nolint:fatcontext // once
				defer func() { endSpan(cl.last.err) }()
			}
			a := w.attempt(ctx, cl)
			d := w.decide(ctx, cl, a)
			then, err = w.act(ctx, cl, a, d)
		}
		switch {
		case err != nil:
			return false, err
		case then == elsewhere:
			return w.pass(ctx, cl)
		case then == over:
			return false, nil
		}
	}
}

func (w *worker) take(cl *claim) {
	w.c.counters.claim(w.slot, cl, w.ep.Name, time.Now())
	w.ep.hands.Add(1)
}

func (w *worker) release(cl *claim, passed bool) {
	if !passed && !cl.settled {
		w.c.counters.giveBack(cl.failed)
	}
	w.c.counters.release(w.slot)
	w.ep.gate.leave(cl.permit)
	w.ep.hands.Add(-1)
}

// decide returns what follows from the end of the attempt, for the server and for the sample. It
// checks the server or waits if the breaker asks for it.
func (w *worker) decide(ctx context.Context, cl *claim, a *attempt) breaker.Decision {
	end := w.end(ctx, a)
	if ctx.Err() == nil && end.Kind != breaker.Busy {
		w.ep.gate.heed(cl.key, a.class, a.err)
	}
	d := w.ep.lock().Ended(&cl.budget, end, time.Now())
	w.ep.unlock()
	noneLeft := w.ep.follow(d.Change, a.err)
	for d.Next != breaker.Nothing {
		if d.Next == breaker.Check {
			works := w.ep.check(ctx)
			d = w.ep.lock().Checked(&cl.budget, d, works, ctx.Err() != nil)
		} else {
			w.ep.waitDown(ctx)
			d = w.ep.lock().Waited(&cl.budget, d)
		}
		w.ep.unlock()
		noneLeft = w.ep.follow(d.Change, a.err)
	}
	if end.Kind == breaker.Busy && !d.HadRoom {
		w.ep.gate.heed(cl.key, a.class, a.err)
	}
	switch {
	case end.Kind == breaker.Cancelled:
		a.stop = context.Cause(ctx)
	case d.Verdict == breaker.Stop:
		a.stop = a.err
	case noneLeft != nil:
		d.Verdict, a.stop = breaker.Stop, noneLeft
	}
	return d
}

// end describes the end of the attempt to package breaker. Only end translates a Class and a Stage.
func (w *worker) end(ctx context.Context, a *attempt) breaker.End {
	e := breaker.End{
		Key: a.Key, Stage: breaker.Rolling, Replied: a.replied,
		Probe:  a.cl.permit != nil && a.cl.permit.probe,
		InHand: int(w.ep.hands.Load()), Limit: w.ep.gate.limit(),
	}
	if stageOf(a.err) == StageOpen {
		e.Stage = breaker.Opening
	}
	takeover := a.Kind == KindReattach
	switch {
	case a.err == nil:
		e.Kind = breaker.Done
	case ctx.Err() != nil:
		e.Kind = breaker.Cancelled
	case a.class.Fatal():
		e.Kind = breaker.Fatal
	case a.class == ClassCensored:
		e.Kind = breaker.Cut
	case takeover && a.class == ClassLost:
		e.Kind = breaker.Gone
	case takeover && e.Stage == breaker.Opening && !a.class.Retryable():
		e.Kind = breaker.Final // the server rejects the lookup, but could make a new agent
	case a.class.DataRetryable():
		e.Kind = breaker.Policy
	case !a.class.Retryable():
		e.Kind = breaker.Final
	case isLostAnswer(a.err):
		e.Kind = breaker.LostAnswer
	case a.class == ClassRateLimited:
		e.Kind = breaker.Busy
	case moved(a.err):
		e.Kind = breaker.Moved
	case outOfTime(a.err):
		e.Kind = breaker.Slow
	default:
		e.Kind = breaker.Fault
	}
	return e
}

// act carries out the decision: it fails the sample, or waits before the next attempt.
func (w *worker) act(ctx context.Context, cl *claim, a *attempt, d breaker.Decision) (next, error) {
	switch {
	case d.Verdict == breaker.Stop:
		w.stopped(ctx, cl, a)
		return over, a.stop
	case d.Verdict == breaker.Over:
		return over, nil
	case d.Verdict == breaker.PassOn:
		return elsewhere, w.retry(cl, a, false)
	case a.tookOverNothing(d.Verdict):
		cl.queued = time.Now()
		return try, w.gone(cl, a.N, a.err)
	case d.Verdict == breaker.Fail:
		return over, w.fail(ctx, cl, a, d.Charged)
	}
	err := w.retry(cl, a, d.Charged)
	if err == nil && d.Backoff && !w.moves(cl) && !w.c.stopping(ctx) {
		err = w.wait(ctx, cl, a, w.c.cfg.delay(cl.tries, a.err))
	}
	cl.queued = time.Now()
	return try, err
}

// retry journals the end of an attempt before the next one. An attempt that must still be taken
// over has not ended: its lookup is retried.
func (w *worker) retry(cl *claim, a *attempt, charged bool) error {
	if cl.left != nil {
		return nil
	}
	if a.class.Retryable() && a.took > 0 {
		w.c.counters.remade(a, a.class)
	}
	cl.kind = kindAfter(a.class, a.N)
	return w.noteEnd(cl, a.N, a.class, charged)
}

// wait waits for d after a failed attempt, or until the sample moves or the run is drained. For the
// first second the sample keeps its permit, so that a server that refuses every sample does not get
// one after the other.
func (w *worker) wait(ctx context.Context, cl *claim, a *attempt, d time.Duration) error {
	w.c.cfg.Events.RetryWaiting(a.Attempt, a.err, d)
	w.c.counters.stage(w.slot, a.N, StageWait, time.Now())
	start := time.Now()
	defer func() { cl.backoff += time.Since(start) }()
	moment := min(d, time.Second)
	if err := w.sleep(ctx, cl, moment); err != nil {
		return err
	}
	w.ep.gate.leave(cl.permit)
	cl.permit = nil
	return w.sleep(ctx, cl, d-moment)
}

// sleep waits for d, until the deadline, a move or a drain.
func (w *worker) sleep(ctx context.Context, cl *claim, d time.Duration) error {
	if at := w.c.deadline(cl.task); !at.IsZero() {
		d = min(d, time.Until(at))
	}
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

// delay returns the wait after n failed attempts. A delay that the server asks for gets jitter too,
// because every client gets the same one.
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

// fail appends the failure of the sample to the sink, and then journals the end of its last
// attempt. If the process dies in between, the dataset decides.
func (w *worker) fail(ctx context.Context, cl *claim, a *attempt, charged bool) error {
	if a.class == ClassCensored {
		return w.censor(ctx, cl, false, ErrCensored)
	}
	err := w.append(ctx, cl, a.failed, a.class, yieldOf(a.failed))
	if cl.settled {
		err = errors.Join(err, w.noteEnd(cl, a.N, a.class, charged)) // also after one failure too many
	}
	if err != nil || cl.task.Recorded != nil { // one old server run does not predict the next
		return err
	}
	return w.c.barren.failed(cl.group, a.class, w.c.hands(), a.err)
}

// append appends the sample to the sink. class is the class of its failure, or ClassNone. y is its
// yield, counted before the sink owns it. An error ends the run, unless the sink refuses a sample
// that did not fail.
func (w *worker) append(ctx context.Context, cl *claim, s *tokenize.Sample, class Class, y Yield) error {
	c, key, before, took := w.c, cl.key, cl.failed, s.Duration
	accepted := c.cfg.Events.SampleFinished(s)
	tooMany := c.counters.accept(class, c.cfg.MaxFailures)
	done := func(err error) {
		c.counters.done(key, class, before, err)
		if err != nil {
			(*c.stop.Load())(fmt.Errorf("%w: %w", ErrStorage, err))
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
	c.measured(class, took, y.Sampled)
	if class == ClassNone {
		c.wellDone(1)
	}
	if y.Rows > 0 {
		c.barren.gaveRow()
	}
	if tooMany {
		return fmt.Errorf("%w: more than %d failed", ErrTolerance, c.cfg.MaxFailures)
	}
	return nil
}

// refused reports whether the sink refuses this sample because of its content.
func refused(err error) bool {
	r, ok := errors.AsType[interface {
		error
		Refused() bool
	}](err)
	return ok && r.Refused()
}
