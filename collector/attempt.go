package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A try is an attempt in progress.
type try struct {
	w     *worker
	a     Attempt
	cl    *claim
	began time.Time
	stage Stage
	gain  gain
	left  leftOut

	admitted    time.Duration // for so long it waited for room before
	rolled      time.Duration // for so long the server worked on it
	waited      time.Duration // for the sink
	firstAnswer time.Duration
}

// attempt is one attempt from start to end: it opens an agent, lets it run, finds
// the prompts, builds and checks the rows, scores them, gives the sample to the
// sink and removes the agent. Nothing is removed before the sink has the sample.
//
// Where it fails it returns an *AttemptError and, in a sample that owns its
// memory, what is left of the tokens. Afterwards cl.left says whether an attempt of
// an earlier process is still to be taken over, and cl.alive whether an agent may be
// left on the server.
func (w *worker) attempt(ctx context.Context, cl *claim) (failed *tokenize.Sample, err error) {
	c := w.c
	if err := w.next(cl); err != nil {
		return nil, err
	}
	a := cl.attempt(c.cfg.RunID)
	ctx, endSpan := span(ctx, c.cfg.Events.AttemptSpan, a, w.ep.Name)
	t := &try{w: w, a: a, cl: cl, began: time.Now(), admitted: cl.admitted}
	cl.admitted = 0
	if cl.started.IsZero() {
		cl.started = t.began
	}
	c.counters.attempt(a.Kind)
	c.cfg.Events.attemptStarted(a, w.ep.Name)
	defer func() {
		class := Classify(err)
		if err != nil && ctx.Err() != nil {
			class = ClassCancelled
		}
		c.counters.attemptFailed(class)
		took := time.Since(t.began)
		cl.took, cl.why = 0, ""
		if t.stage > StageOpen {
			cl.took = max(took, t.rolled)
		}
		if e, ok := errors.AsType[*recallError](err); ok {
			cl.why = e.word
		}
		c.counters.ended(err == nil, cl.took)
		c.cfg.Events.attemptFinished(Result{
			Attempt: a, Endpoint: w.ep.Name, Err: err, Class: class,
			Started: t.began, Duration: took, Working: took - t.waited, FirstAnswer: t.firstAnswer, Admission: t.admitted,
			Sampled: t.gain.sampled, Trained: t.gain.trained, Rows: t.gain.rows,
		})
		endSpan(err)
	}()

	// What waits for the sink must not time out: only up to the reward is the
	// attempt's own time.
	timed, cancel := context.WithTimeoutCause(ctx, c.cfg.AttemptTimeout, errOutOfTime)
	defer cancel()

	// The tail policy cuts rollouts, and not what is made of those that are done.
	rolling, done := c.untilCut(timed)
	defer done()

	t.enter(StageOpen)
	// Nothing is lost where a server that is down is asked no longer for an agent, nor
	// where one that is dark for long is not waited for.
	opening, running, opened, ran := rolling, rolling, func() {}, func() {}
	if len(c.endpoints) > 1 && cl.left == nil {
		opening, opened = untilMoved(rolling, &w.ep.away)
		running, ran = untilMoved(rolling, &w.ep.dark)
	}
	defer opened()
	defer ran()
	agent, err := t.open(opening)
	if agent != nil {
		defer t.close(ctx, agent)
	}
	if err != nil {
		cl.alive = agent == nil && ctx.Err() != nil // it was being made
		err = t.failed(opening, err)
		return t.failure(nil, err), err
	}
	opened()
	if w.ep.health.opened() {
		w.answered(time.Now())
	}

	t.enter(StageRun)
	reply, err := agent.Run(running)
	if reply != nil {
		t.firstAnswer = reply.FirstAnswer
	}
	t.rolled = reply.took()
	cl.replied = time.Now()
	if err != nil {
		err = t.failed(running, err)
		return t.failure(reply, err), err
	}
	s, err := t.sample(timed, reply, agent.Prompts)
	if a.Kind == KindReattach && !errors.Is(err, ErrGone) {
		c.counters.reattached(false)
		c.cfg.Events.reattached(a, w.ep.Name, nil)
	}
	if err != nil {
		err = t.failed(timed, err)
		return t.failure(reply, err), err
	}
	t.enter(StageAppend)
	t.gain = gainOf(s)
	t.gain.leftOut = t.left
	asked := time.Now()
	err = w.append(ctx, cl, s, ClassNone, t.gain)
	t.waited += time.Since(asked)
	if err != nil {
		t.gain = gain{}
		err = t.failed(ctx, err)
		return t.failure(reply, err), err
	}
	if err := w.end(cl, ClassNone, false); err != nil {
		return nil, t.failed(ctx, err)
	}
	return nil, nil
}

func (cl *claim) attempt(runID string) Attempt {
	return Attempt{Task: cl.task, Key: cl.key, Index: cl.index, GroupSize: cl.groupSize, N: cl.attempts, Kind: cl.kind, RunID: runID}
}

// next advances the claim to its next attempt: the open one of an earlier process, where
// this worker can take it over, else a new one.
func (w *worker) next(cl *claim) error {
	if cl.left != nil && !w.reattaches(cl.left) {
		if err := w.gone(cl, cl.left.N, safeError{fmt.Errorf("%w: it was made at %q", ErrGone, cl.left.Endpoint)}); err != nil {
			return err
		}
	}
	cl.alive = false
	cl.took, cl.why = 0, ""
	cl.tries++
	if cl.left != nil {
		cl.attempts, cl.kind = cl.left.N, KindReattach
		return nil
	}
	cl.attempts++
	if j := w.c.cfg.Journal; j != nil {
		return journaled(j.Begin(cl.attempt(w.c.cfg.RunID), w.ep.Name))
	}
	return nil
}

func (t *try) enter(s Stage) {
	t.stage = s
	t.w.c.counters.stage(t.w.slot, t.a.N, s, time.Now())
}

// open makes the agent of the attempt, or finds the one that an earlier process made,
// and notes it.
func (t *try) open(ctx context.Context) (Agent, error) {
	c, left := t.w.c, t.cl.left
	a := t.a
	if c.cfg.Journal != nil {
		a.ServerRun = c.serverRun(&a, left)
	}
	if away := t.w.ep.away.raised(); left == nil && len(c.endpoints) > 1 && away.Err() == nil {
		a.Away = away.Done()
	}
	var agent Agent
	var err error
	if left != nil {
		agent, err = t.w.ep.Backend.(Reattacher).Reattach(ctx, a, *left) //nolint:forcetypeassert // next has looked
	} else {
		agent, err = t.w.ep.Backend.Open(ctx, a)
	}
	if err != nil || c.cfg.Journal == nil || left != nil && left.AgentID == agent.ID() {
		return agent, err
	}
	return agent, journaled(c.cfg.Journal.Agent(a.Key, a.N, agent.ID()))
}

// serverRun notes the server runs of the attempt but for those that are known.
func (c *Collector) serverRun(a *Attempt, left *OpenAttempt) func(id string) {
	key, n := a.Key, a.N
	return func(id string) {
		if left != nil && slices.Contains(left.ServerRuns, id) {
			return
		}
		if err := c.cfg.Journal.ServerRun(key, n, id); err != nil {
			(*c.stop.Load())(journaled(err))
		}
	}
}

// failed says where err came from; timed is the attempt's own context, whose end
// is the true reason of whatever failed then.
func (t *try) failed(timed context.Context, err error) error {
	if errors.Is(context.Cause(timed), ErrCensored) && !errors.Is(err, ErrCensored) {
		err = fmt.Errorf("%w: %w", ErrCensored, err)
	}
	if errors.Is(context.Cause(timed), errMoved) && !errors.Is(err, errMoved) {
		err = fmt.Errorf("%w: %w", errMoved, err)
	}
	if errors.Is(context.Cause(timed), errOutOfTime) && !errors.Is(err, errOutOfTime) {
		err = fmt.Errorf("%w (%v): %w", errOutOfTime, t.w.c.cfg.AttemptTimeout, err)
	}
	return &AttemptError{Task: t.a.Task.ID, Index: t.a.Index, Attempt: t.a.N, Stage: t.stage, Err: err}
}

// end notes how the attempt ended.
func (w *worker) end(cl *claim, class Class, charged bool) error {
	if j := w.c.cfg.Journal; j != nil {
		return journaled(j.End(cl.key, cl.attempts, class, charged))
	}
	return nil
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

// journaled is the error of a run whose journal failed.
func journaled(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: journal: %w", ErrStorage, err)
}
