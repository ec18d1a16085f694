package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// An attempt is one try at a sample, including the decision about what follows.
type attempt struct {
	Attempt
	w  *worker
	cl *claim

	stage Stage // current stage
	began time.Time
	yield Yield
	cut   Yield // what the sample does not show: cut tokens, and where the versions came from

	admission   time.Duration // wait for room before the attempt
	firstAnswer time.Duration // see Reply.FirstAnswer
	rolled      time.Duration // working time of the server; 0 if unknown
	replied     time.Time     // end of the rollout
	sinkWait    time.Duration // wait for the sink

	err    error // an *AttemptError; nil if the sink has the sample
	class  Class
	stop   error            // not nil: ends the run
	failed *tokenize.Sample // remaining tokens of a failed attempt; owns its memory
	took   time.Duration    // duration of the rollout; 0 if it did not start
	why    string           // reason of the retry, if class does not show it
	alive  bool             // its agent can still exist on the server
}

// attempt makes one attempt from its Begin to the removal of its agent. If a step fails, the agent
// is removed before the decision, and a.failed is a copy of the remaining tokens. Afterwards
// cl.left is nil unless an attempt of an earlier process must still be taken over.
func (w *worker) attempt(ctx context.Context, cl *claim) *attempt {
	c := w.c
	a, err := w.begin(cl)
	if err != nil {
		a.err, a.class = err, Classify(err)
		return a
	}
	ctx, endSpan := c.cfg.Events.AttemptSpan(ctx, a.Attempt, w.ep.Name)
	c.counters.attempt(a.Kind)
	c.cfg.Events.AttemptStarted(a.Attempt, w.ep.Name)

	a.err = a.run(ctx)
	a.class = Classify(a.err)

	took := time.Since(a.began)
	if a.stage > StageOpen {
		a.took = max(took, a.rolled)
	}
	if e, ok := errors.AsType[*lostAnswerError](a.err); ok {
		a.why = e.word
	}
	class := a.class
	if a.err != nil && ctx.Err() != nil {
		class = ClassCancelled
	}
	c.counters.ended(class, a.took)
	c.cfg.Events.AttemptFinished(Result{
		Attempt: a.Attempt, Endpoint: w.ep.Name, Err: a.err, Class: class,
		Started: a.began, Duration: took, Working: took - a.sinkWait, FirstAnswer: a.firstAnswer, Admission: a.admission,
		Sampled: a.yield.Sampled, Trained: a.yield.Trained, Rows: a.yield.Rows,
	})
	endSpan(a.err)
	return a
}

// begin begins the open attempt of an earlier process if this worker can take it over, otherwise a
// new one, which it journals.
func (w *worker) begin(cl *claim) (*attempt, error) {
	var err error
	if cl.left != nil && !w.reattaches(cl.left) {
		err = w.goneElsewhere(cl)
	}
	a := &attempt{Attempt: cl.upcoming(w.c.cfg.RunID), w: w, cl: cl}
	cl.last = a
	if j := w.c.cfg.Journal; err == nil && j != nil && cl.left == nil {
		err = journaled(j.Begin(a.Attempt, w.ep.Name))
	}
	if err != nil {
		return a, err
	}
	cl.n = max(cl.n, a.N)
	cl.tries++
	a.began, a.admission, cl.admission = time.Now(), cl.admission, 0
	if cl.started.IsZero() {
		cl.started = a.began
	}
	return a, nil
}

func (a *attempt) run(ctx context.Context) error {
	c, w, ep := a.w.c, a.w, a.w.ep

	// The time limit of the attempt ends with the reward: waiting for the sink does not time out.
	timed, cancel := context.WithTimeoutCause(ctx, c.cfg.AttemptTimeout, errOutOfTime)
	defer cancel()

	// The tail policy and deadlines cut a rollout only until its reply is complete.
	rolling, done := c.untilCut(timed)
	defer done()
	rolling, stop := c.untilDeadline(rolling, a.Task)
	defer stop()

	// If another server can make the sample, two waits end early without a loss: opening an agent
	// when the server goes down, and running on a server that went dark.
	opening, running, opened, ran := rolling, rolling, func() {}, func() {}
	if len(c.endpoints) > 1 && a.cl.left == nil {
		opening, opened = untilMoved(rolling, &ep.away)
		running, ran = untilMoved(rolling, &ep.dark)
	}
	defer opened()
	defer ran()

	a.enter(StageOpen)
	agent, err := a.open(opening)
	if agent != nil {
		defer a.close(ctx, agent)
	}
	if err != nil {
		a.alive = agent == nil && ctx.Err() != nil // the run stopped while the agent was made
		return a.fail(opening, nil, err)
	}
	opened()
	ch := ep.lock().AgentMade(time.Now())
	ep.unlock()
	_ = ep.follow(ch, nil) // an answer loses no endpoint

	a.enter(StageRun)
	reply, err := agent.Run(running)
	if reply != nil {
		a.firstAnswer = reply.FirstAnswer
	}
	a.rolled, a.replied = reply.took(), time.Now()
	if err != nil {
		return a.fail(running, reply, err)
	}
	s, err := a.sample(timed, reply, agent.Prompts)
	if a.Kind == KindReattach && !errors.Is(err, ErrGone) {
		c.counters.update(func(s *Stats) { s.Reattached++ })
		c.cfg.Events.Reattached(a.Attempt, ep.Name, nil)
	}
	if err != nil {
		return a.fail(timed, reply, err)
	}

	a.enter(StageAppend)
	a.yield = yieldOf(s)
	a.yield.add(a.cut)
	asked := time.Now()
	err = w.append(ctx, a.cl, s, ClassNone, a.yield)
	a.sinkWait = time.Since(asked)
	if err != nil {
		a.yield = Yield{}
		return a.fail(ctx, reply, err)
	}
	if err := w.noteEnd(a.cl, a.N, ClassNone, false); err != nil {
		return a.wrap(ctx, err)
	}
	return nil
}

func (a *attempt) enter(s Stage) {
	a.stage = s
	a.w.c.counters.stage(a.w.slot, a.N, s, time.Now())
}

// open makes the agent of the attempt, or finds the agent that an earlier process made, and
// journals it.
func (a *attempt) open(ctx context.Context) (Agent, error) {
	c, left, at := a.w.c, a.cl.left, a.Attempt
	if c.cfg.Journal != nil {
		at.ServerRun = a.serverRun
	}
	if away := a.w.ep.away.raised(); left == nil && len(c.endpoints) > 1 && away.Err() == nil {
		at.Away = away.Done()
	}
	var agent Agent
	var err error
	if left != nil {
		agent, err = a.w.ep.Backend.(Reattacher).Reattach(ctx, at, *left) //nolint:forcetypeassert // begin has looked
	} else {
		agent, err = a.w.ep.Backend.Open(ctx, at)
	}
	if err != nil || c.cfg.Journal == nil || left != nil && left.AgentID == agent.ID() {
		return agent, err
	}
	return agent, journaled(c.cfg.Journal.Agent(a.Key, a.N, agent.ID()))
}

// serverRun journals a server run, unless an earlier process did.
func (a *attempt) serverRun(id string) {
	c, left := a.w.c, a.cl.left
	if left != nil && slices.Contains(left.ServerRuns, id) {
		return
	}
	if err := c.cfg.Journal.ServerRun(a.Key, a.N, id); err != nil {
		(*c.stop.Load())(journaled(err))
	}
}

// fail copies the remaining tokens into a.failed, and returns err as wrap does. r can be nil.
func (a *attempt) fail(ctx context.Context, r *Reply, err error) error {
	err = a.wrap(ctx, err)
	a.failed = a.failure(r, err)
	return err
}

// wrap adds the stage to err, and the cause of ctx, the stage's context, if it has ended.
func (a *attempt) wrap(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrCensored) && !errors.Is(err, ErrCensored) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if errors.Is(cause, errMoved) && !errors.Is(err, errMoved) {
		err = fmt.Errorf("%w: %w", errMoved, err)
	}
	if errors.Is(cause, errOutOfTime) && !errors.Is(err, errOutOfTime) {
		err = fmt.Errorf("%w (%v): %w", errOutOfTime, a.w.c.cfg.AttemptTimeout, err)
	}
	return &AttemptError{Task: a.Task.ID, Index: a.Index, Attempt: a.N, Stage: a.stage, Err: err}
}

func (w *worker) noteEnd(cl *claim, n int, class Class, charged bool) error {
	if j := w.c.cfg.Journal; j != nil {
		return journaled(j.End(cl.key, n, class, charged))
	}
	return nil
}

// stopped journals the end of an attempt that a stop cut off, unless its agent can still exist: the
// next process looks for attempts without an end.
func (w *worker) stopped(ctx context.Context, cl *claim, a *attempt) {
	if cl.left != nil || a.alive {
		return
	}
	class := a.class
	if ctx.Err() != nil {
		class = ClassCancelled
	}
	if err := w.noteEnd(cl, a.N, class, false); err != nil {
		w.c.cfg.Logger.WarnContext(ctx, "cannot journal the end of an attempt", "endpoint", w.ep.Name, "sample_key", cl.key, "error", err)
	}
}

// journaled makes an error of the journal one that ends the run.
func journaled(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: journal: %w", ErrStorage, err)
}
