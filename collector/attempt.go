package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// An attempt is one try at a sample, with its result.
type attempt struct {
	Attempt
	w    *worker
	cl   *claim       // read-only
	open *OpenAttempt // attempt of an earlier process that this attempt takes over, or nil

	stage        Stage // current stage
	began        time.Time
	yield        Yield
	alignerYield Yield // counts that the sample itself does not contain, such as cut tokens

	admission   time.Duration // wait for a permit before the attempt
	firstAnswer time.Duration // see Reply.FirstAnswer
	serverTime  time.Duration // working time of the server; 0 if unknown
	replied     time.Time     // end of the rollout or, if it is known, of the server's last answer
	sinkWait    time.Duration // wait for the sink

	err         error // nil if the sink accepted the sample; an *AttemptError unless begin returned the error
	class       Class
	failed      *tokenize.Sample // remaining tokens of a failed attempt; shares no memory with the reply
	took        time.Duration    // duration of the rollout; 0 if it did not start
	retryReason string           // key in Stats.Remade; if empty, the key is the name of the class

	agentRemoved  bool // no agent is left to take over
	agentMayExist bool // the agent might still exist on the server
}

// attempt makes one attempt, from its Begin entry in the journal to the removal of its agent. If a
// step fails, a.failed contains a copy of the remaining tokens.
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
	if a.agentRemoved {
		cl.retry.open = nil
	}

	took := time.Since(a.began)
	if a.stage > StageOpen {
		a.took = max(took, a.serverTime)
	}
	if e, ok := errors.AsType[*lostAnswerError](a.err); ok {
		a.retryReason = e.word
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

// begin starts the takeover of the sample's open attempt if this worker can do it. Otherwise it
// starts a new attempt and journals it.
func (w *worker) begin(cl *claim) (*attempt, error) {
	var err error
	if open := cl.retry.open; open != nil && !w.ep.reattaches(open) {
		err = w.giveUpOpen(cl, open.N, safeError{fmt.Errorf("%w: it belongs to endpoint %q", ErrGone, open.Endpoint)})
	}
	a := &attempt{Attempt: cl.upcoming(w.c.cfg.RunID), w: w, cl: cl, open: cl.retry.open}
	cl.retry.last = a
	if j := w.c.cfg.Journal; err == nil && j != nil && a.open == nil {
		err = journaled(j.Begin(a.Attempt, w.ep.Name))
	}
	if err != nil {
		return a, err
	}
	a.began = time.Now()
	a.admission, cl.place.roomWait = cl.place.roomWait, 0
	cl.retry.begin(a)
	return a, nil
}

func (a *attempt) run(ctx context.Context) error {
	c, ep := a.w.c, a.w.ep

	// The time limit of the attempt does not include the wait for the sink.
	timed, cancel := context.WithTimeoutCause(ctx, c.cfg.AttemptTimeout, ErrOutOfTime)
	defer cancel()

	// A rollout can be cut only until its reply is complete.
	rolling, stop := a.cl.cut.context(timed)
	defer stop()

	// If another server can take the sample, two waits end early, and no work is lost. The wait for
	// a new agent ends when the server goes down. The wait for the rollout ends when the server has
	// become unreachable.
	opening, running := rolling, rolling
	if len(c.endpoints) > 1 && a.open == nil {
		opening, stop = untilMoved(rolling, &ep.away)
		defer stop()
		running, stop = untilMoved(rolling, &ep.unreachable)
		defer stop()
	}

	a.setStage(StageOpen)
	agent, err := a.openAgent(opening)
	if agent != nil {
		defer a.close(ctx, agent)
	}
	if err != nil {
		a.agentMayExist = agent == nil && ctx.Err() != nil // the run stopped while the agent was being made
		return a.fail(opening, nil, err)
	}
	ch := ep.lock().AgentMade(time.Now())
	ep.unlock()
	_ = ep.applyChange(ch, nil) // cannot fail, because only the loss of an endpoint causes an error

	a.setStage(StageRun)
	reply, err := agent.Run(running)
	a.serverTime, a.replied = reply.took(), time.Now()
	if reply != nil {
		a.firstAnswer = reply.FirstAnswer
		if !reply.LastAnswer.IsZero() {
			a.replied = reply.LastAnswer
		}
	}
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

	a.setStage(StageAppend)
	a.yield = yieldOf(s)
	a.yield.add(a.alignerYield)
	asked := time.Now()
	err = c.append(ctx, a.cl, s, ClassNone, a.yield)
	a.sinkWait = time.Since(asked)
	if err != nil {
		a.yield = Yield{}
		return a.fail(ctx, reply, err)
	}
	if err := c.journalEnd(a.cl, a.N, ClassNone, false); err != nil {
		return a.wrap(ctx, err)
	}
	return nil
}

func (a *attempt) setStage(s Stage) {
	a.stage = s
	a.w.c.counters.stage(a.w.slot, a.N, s, time.Now())
}

// openAgent creates the agent of the attempt, or finds the agent that an earlier process created.
// It journals the agent's id.
func (a *attempt) openAgent(ctx context.Context) (Agent, error) {
	c, at := a.w.c, a.Attempt
	if c.cfg.Journal != nil {
		at.ServerRun = a.serverRun
	}
	if away := a.w.ep.away.raised(); a.open == nil && len(c.endpoints) > 1 && away.Err() == nil {
		at.Away = away.Done()
	}
	var agent Agent
	var err error
	if a.open != nil {
		agent, err = a.w.ep.Backend.(Reattacher).Reattach(ctx, at, *a.open) //nolint:forcetypeassert // begin checked the type
	} else {
		agent, err = a.w.ep.Backend.Open(ctx, at)
	}
	if err != nil || c.cfg.Journal == nil || a.open != nil && a.open.AgentID == agent.ID() {
		return agent, err
	}
	return agent, journaled(c.cfg.Journal.Agent(a.Key, a.N, agent.ID()))
}

// serverRun journals a server run, unless an earlier process has already journaled it.
func (a *attempt) serverRun(id string) {
	if a.open != nil && slices.Contains(a.open.ServerRuns, id) {
		return
	}
	a.w.c.end(journaled(a.w.c.cfg.Journal.ServerRun(a.Key, a.N, id)))
}

// fail copies the remaining tokens into a.failed, and returns the error from wrap. The reply can be
// nil.
func (a *attempt) fail(ctx context.Context, r *Reply, err error) error {
	err = a.wrap(ctx, err)
	a.failed = a.failure(r, err)
	return err
}

// wrap adds the stage to err. The parameter ctx is the context of the stage. If ctx has ended
// because of a cut, a move or the time limit, wrap also adds that cause.
func (a *attempt) wrap(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrCensored) && !errors.Is(err, ErrCensored) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if errors.Is(cause, errElsewhere) && !errors.Is(err, errElsewhere) {
		err = fmt.Errorf("%w: %w", errElsewhere, err)
	}
	if errors.Is(cause, ErrOutOfTime) && !errors.Is(err, ErrOutOfTime) {
		err = fmt.Errorf("%w (%v): %w", ErrOutOfTime, a.w.c.cfg.AttemptTimeout, err)
	}
	return &AttemptError{Task: a.Task.ID, Index: a.Index, Attempt: a.N, Stage: a.stage, Err: err}
}

// errElsewhere ends an attempt whose server is down while another server can take the sample.
var errElsewhere = fmt.Errorf("%w: the sample moves to another server", ErrUnavailable)

// untilMoved derives a context that is canceled with errElsewhere when the flag is raised. If the flag
// is already up, untilMoved returns ctx unchanged. The caller must call the returned function.
func untilMoved(ctx context.Context, f *flag) (context.Context, context.CancelFunc) {
	if f.isUp() {
		return ctx, func() {}
	}
	return f.until(ctx, errElsewhere)
}
