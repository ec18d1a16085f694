package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/collector/breaker"
	"github.com/rollout-rl/rollout/collector/wait"
)

// A retryState contains the data that a sample keeps from one attempt to the next. The worker that
// holds the sample owns the retryState. An attempt only reads the retryState.
type retryState struct {
	budget  breaker.Budget
	open    *OpenAttempt  // attempt of an earlier process to take over, or nil
	last    *attempt      // last attempt by this process, or nil
	number  int           // number of the last attempt, across all processes
	made    int           // number of attempts by this process
	kind    Kind          // kind of the next attempt if the field open is nil
	started time.Time     // start of the first attempt; zero before that
	backoff time.Duration // total wait between attempts
}

// resumed returns the state of a sample that earlier processes worked on.
func resumed(left *SampleState) retryState {
	r := retryState{number: left.Attempts, open: left.Open}
	if r.open != nil {
		r.number = max(r.number, r.open.N) // ensures that no number is reused, even if Attempts is too low
	}
	if left.Failed == ClassNone { // a failed sample gets a new budget
		r.budget = breaker.Resume(left.Charged, left.DataCharged)
	}
	r.kind = kindAfter(left.Failed, r.number)
	return r
}

// kindAfter returns the kind of the attempt that follows n attempts. The parameter class is the
// class of the last attempt's failure.
func kindAfter(class Class, n int) Kind {
	switch {
	case n == 0:
		return KindFirst
	case class.DataRetryable():
		return KindDataRetry
	}
	return KindInfraRetry
}

// upcoming returns the next attempt: the open attempt to take over, or a new attempt.
func (cl *claim) upcoming(runID string) Attempt {
	r := &cl.retry
	if r.open != nil {
		return cl.numbered(runID, r.open.N, KindReattach)
	}
	return cl.numbered(runID, r.number+1, r.kind)
}

func (s *sample) numbered(runID string, n int, kind Kind) Attempt {
	return Attempt{Task: s.task, Key: s.key, Index: s.index, GroupSize: s.groupSize, N: n, Kind: kind, RunID: runID}
}

func (r *retryState) begin(a *attempt) {
	r.number = max(r.number, a.N)
	r.made++
	if r.started.IsZero() {
		r.started = a.began
	}
}

// followUp decides what happens after the attempt. If the sample has failed, followUp appends the
// failure. If the sample is retried after a delay, followUp waits for that delay.
func (w *worker) followUp(ctx context.Context, cl *claim, a *attempt) (next, error) {
	c, r := w.c, &cl.retry
	d, stop := w.ep.decide(ctx, &r.budget, a, cl.place.isProbe())
	switch {
	case d.Verdict == breaker.Stop:
		c.journalStop(ctx, cl, a)
		return over, stop
	case errors.Is(a.err, ErrMoved):
		c.journalStop(ctx, cl, a)
		return over, nil
	case d.Verdict == breaker.Over:
		return over, nil
	case d.Verdict == breaker.PassOn:
		return elsewhere, w.prepareRetry(cl, a, false)
	case a.takeoverFailed(d.Verdict):
		cl.place.queuedAt = time.Now()
		return try, w.giveUpOpen(cl, a.N, a.err)
	case d.Verdict == breaker.Fail:
		return over, c.fail(ctx, cl, a, d.Charged)
	}
	err := w.prepareRetry(cl, a, d.Charged)
	if err == nil && a.class.Retryable() {
		err = c.failedEarly(cl, a) // before the retries of a broken command take hours
	}
	if err == nil && d.Backoff && !cl.place.mustMove(r.open) && !c.stopping(ctx) {
		delay, start := c.cfg.delay(r.made, a.err), time.Now()
		c.cfg.Events.RetryWaiting(a.Attempt, a.err, delay)
		c.counters.stage(w.slot, a.N, StageWait, start)
		err = cl.place.hold(ctx, delay, cl.cut, r.open)
		r.backoff += time.Since(start)
	}
	cl.place.queuedAt = time.Now()
	return try, err
}

// prepareRetry sets the kind of the next attempt and journals the end of the last attempt. If an
// open attempt must still be taken over, prepareRetry does nothing, because that attempt has not
// ended and only its lookup is retried.
func (w *worker) prepareRetry(cl *claim, a *attempt, charged bool) error {
	if cl.retry.open != nil {
		return nil
	}
	if a.class.Retryable() && a.took > 0 {
		w.c.counters.remade(a, a.class)
	}
	cl.retry.kind = kindAfter(a.class, a.N)
	return w.c.journalEnd(cl, a.N, a.class, charged)
}

// decide reports the end of the attempt to the breaker and returns the breaker's decision. If the
// breaker requests a check or a wait, decide checks the server or waits first. If the run stops,
// decide returns the reason as an error.
func (e *endpoint) decide(ctx context.Context, budget *breaker.Budget, a *attempt, probe bool) (breaker.Decision, error) {
	end := a.end(ctx)
	end.Probe, end.InHand, end.Limit = probe, int(e.held.Load()), e.gate.limit()
	if ctx.Err() == nil && end.Kind != breaker.Busy {
		e.gate.attemptEnded(a.Key, a.class, a.err)
	}
	var d breaker.Decision
	apply := func(step func(b *breaker.Breaker) breaker.Decision) error {
		d = step(e.lock())
		e.unlock()
		return e.applyChange(d.Change, a.err)
	}
	noneLeft := apply(func(b *breaker.Breaker) breaker.Decision { return b.Ended(budget, end, time.Now()) })
	for d.Next != breaker.Nothing {
		if d.Next == breaker.Check {
			works := e.check(ctx)
			noneLeft = apply(func(b *breaker.Breaker) breaker.Decision { return b.Checked(budget, d, works, ctx.Err() != nil) })
		} else {
			wait.For(ctx, waitMax, e.down.raised().Done())
			noneLeft = apply(func(b *breaker.Breaker) breaker.Decision { return b.Waited(budget, d) })
		}
	}
	if end.Kind == breaker.Busy && !d.CheckPassed {
		e.gate.attemptEnded(a.Key, a.class, a.err)
	}
	switch {
	case end.Kind == breaker.Cancelled:
		return d, context.Cause(ctx)
	case d.Verdict == breaker.Stop:
		return d, a.err
	case noneLeft != nil:
		d.Verdict = breaker.Stop
	}
	return d, noneLeft
}

// waitMax limits how long a sample that is on its last retry waits to find out whether its server
// is down.
const waitMax = time.Second

// end describes the end of the attempt for package breaker. Only this function and lossKind
// translate a Class or a Stage for that package.
func (a *attempt) end(ctx context.Context) breaker.End {
	e := breaker.End{Key: a.Key, Stage: breaker.Rolling, Replied: a.replied}
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
	case takeover && e.Stage == breaker.Opening && !a.class.Retryable():
		e.Kind = breaker.Final // the server rejects the lookup, but might still be able to create a new agent
	case a.class.DataRetryable():
		e.Kind = breaker.Policy
	case !a.class.Retryable():
		e.Kind = breaker.Final
	case takeover && a.class == ClassLost || isLostAnswer(a.err):
		e.Kind = a.lossKind(a.class)
	case a.class == ClassRateLimited:
		e.Kind = breaker.Busy
	case errors.Is(a.err, errElsewhere):
		e.Kind = breaker.Moved
	case a.class == ClassNoCalls && a.Task.Recorded != nil:
		e.Kind = breaker.Final // a sealed session gets no more calls
	case a.class == ClassNoCalls, outOfTime(a.err):
		e.Kind = breaker.Own
	default:
		e.Kind = breaker.Fault
	}
	return e
}

// lossKind returns the kind of end for an attempt whose answer was lost.
func (a *attempt) lossKind(class Class) breaker.Kind {
	if a.Kind == KindReattach && class == ClassLost {
		return breaker.Gone
	}
	return breaker.LostAnswer
}

// takeoverFailed reports whether this attempt was a takeover that failed because the server has
// nothing left to take over, or because the lookup failed for good.
func (a *attempt) takeoverFailed(v breaker.Verdict) bool {
	if a.Kind != KindReattach || a.class == ClassCensored {
		return false
	}
	return a.class == ClassLost || v == breaker.Fail && stageOf(a.err) == StageOpen
}

// giveUpOpen abandons the takeover of open attempt n because of err, and refunds the charges for
// the lookup of that attempt.
func (w *worker) giveUpOpen(cl *claim, n int, err error) error {
	if !errors.Is(err, ErrGone) {
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	w.c.counters.update(func(s *Stats) { s.Gone++ })
	w.c.counters.remade(cl.retry.last, ClassLost)
	w.c.cfg.Events.Reattached(cl.numbered(w.c.cfg.RunID, n, KindReattach), w.ep.Name, err)
	cl.retry.budget.RefundTakeover()
	cl.retry.open, cl.retry.kind = nil, KindInfraRetry
	return w.c.journalEnd(cl, n, ClassLost, false)
}

// delay returns the wait after n failed attempts. Jitter is also added to a delay that the server
// requests, because the server requests the same delay from every client.
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
