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

// A claim is one sample in somebody's hands.
type claim struct {
	task      *Task
	group     string
	key       string
	index     int
	groupSize int

	started  time.Time     // of the first attempt; zero before it
	offered  time.Time     // to the workers
	admitted time.Duration // for so long it waited for room, before the next attempt
	waited   time.Duration // between attempts
	passed   bool          // by another endpoint
	attempts int           // the number of the last one, in this process or an earlier one
	tries    int           // attempts of this process
	charged  int           // attempts held against the retries
	rerolled int           // attempts held against the data retries

	kind    Kind         // of the attempt that comes next, or is made
	paid    int          // charged, when the attempt of an earlier process was found
	left    *OpenAttempt // to be taken over by it, else nil
	alive   bool         // its agent may live after its end
	failed  Class        // of the failure that the dataset has, where that is to be mended
	settled bool         // the sink has the sample

	replied time.Time        // when the last attempt's rollout ended
	took    time.Duration    // for so long that was under way; 0: it never was
	why     string           // it is made again, where its class does not say so
	rest    *tokenize.Sample // what the last attempt left, which failed

	permit *permit // to be worked on; nil while it waits
	streak *streak // in which the last failure was, and what it was charged in it
	lent   int

	refused refusals // by a busy server, since anything else came
}

// claim waits for room at the endpoint and then for a sample. It returns false where
// there is nothing left to do for this worker: the run ends, or its endpoint is lost.
func (w *worker) claim(ctx context.Context) (claim, bool) {
	for {
		p := w.ep.gate.enter(ctx, false, w.finished, w.ep.lost)
		if p == nil {
			return claim{}, false
		}
		work, moved := w.work, w.c.relay.out
		if w.bound != nil {
			work, moved = nil, nil
		}
		var cl claim
		ok := false
		select { // what comes from another endpoint was begun
		case cl = <-moved:
			cl.permit = p
			return cl, true
		default:
		}
		select {
		case cl, ok = <-w.bound:
			if !ok {
				w.bound = nil
				w.ep.gate.leave(p)
				continue
			}
		case cl, ok = <-moved:
		case cl, ok = <-work:
		case <-p.taken:
			continue
		case <-w.ep.lost:
		case <-w.finished:
		case <-ctx.Done():
		}
		if !ok {
			w.ep.gate.leave(p)
			return claim{}, false
		}
		cl.permit = p
		return cl, true
	}
}

// room sees to it that the sample may be worked on: by the permit that it was claimed
// with, or by waiting for another. It is without one where the sample is not to be
// worked on here any more, or not now: see moves.
func (w *worker) room(ctx context.Context, cl *claim, since time.Time) error {
	away := w.awayFor(cl).raised().Done()
	for cl.permit == nil || !w.ep.gate.use(cl.permit) {
		cl.permit = w.ep.gate.enter(ctx, true, w.ep.lost, w.c.drain, away)
		if cl.permit != nil {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	waited := time.Since(since)
	cl.admitted += waited
	w.c.counters.update(func(s *Stats) { s.AdmissionWait += waited })
	return nil
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

// fail gives the failure of the sample to the sink, and then notes the end of its last
// attempt: where the process dies in between, the dataset knows better.
func (w *worker) fail(ctx context.Context, cl *claim, failed *tokenize.Sample, class Class, charged bool) error {
	err := w.append(ctx, cl, failed, class, gainOf(failed))
	if !cl.settled {
		return err
	}
	return errors.Join(err, w.end(cl, class, charged)) // also where it was one failure too many
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

// refused reports whether the sink does not take this one sample, because of what is
// in it, and takes others.
func refused(err error) bool {
	r, ok := errors.AsType[interface {
		error
		Refused() bool
	}](err)
	return ok && r.Refused()
}

// A crew is the workers of one endpoint. They are made as samples need them: one of
// them waits for a sample, and the one that gets it makes the next, up to the
// endpoint's MaxInFlight. So the memory of a run follows what is in flight, and not
// what might be.
type crew struct {
	most  int
	start func() // starts one worker

	mu      sync.Mutex
	n, idle int
}

// begin starts the first worker.
func (c *crew) begin() {
	c.n, c.idle = 1, 1
	c.start()
}

// took notes that a worker has a sample, and sees to it that another waits for the next.
func (c *crew) took() {
	c.mu.Lock()
	c.idle--
	more := c.idle == 0 && c.n < c.most
	if more {
		c.n++
		c.idle++
	}
	c.mu.Unlock()
	if more {
		c.start()
	}
}

// back notes that a worker waits for a sample again.
func (c *crew) back() {
	c.mu.Lock()
	c.idle++
	c.mu.Unlock()
}

// newCrew makes the crew of an endpoint. spawn runs a function in a goroutine whose end
// Run waits for.
func (c *Collector) newCrew(ctx context.Context, at int, base worker, spawn func(func() error)) *crew {
	w := &crew{most: c.endpoints[at].MaxInFlight}
	w.start = func() {
		one := base
		one.c, one.ep, one.crew, one.slot = c, c.endpoints[at], w, c.counters.slot(at)
		spawn(func() error { return one.run(ctx) }) // non-nil only when the run must stop
	}
	return w
}
