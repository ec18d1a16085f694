package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

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
	s, err := t.sample(timed, reply)
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

func (cl *claim) attempt(runID string) Attempt {
	return Attempt{Task: cl.task, Key: cl.key, Index: cl.index, GroupSize: cl.groupSize, N: cl.attempts, Kind: cl.kind, RunID: runID}
}

func (t *try) enter(s Stage) {
	t.stage = s
	t.w.c.counters.stage(t.w.slot, t.a.N, s, time.Now())
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

// close removes the agent, in a time of its own: also when the run is stopping.
func (t *try) close(ctx context.Context, agent Agent) {
	c := t.w.c
	t.enter(StageClose)
	ctx, done := t.w.ep.removals.begin(context.WithoutCancel(ctx), c.cfg.CloseTimeout)
	err := agent.Close(ctx)
	done(err)
	if t.cl.alive = err != nil; !t.cl.alive {
		t.cl.left = nil // there is nothing any more to take over
	}
	if err != nil {
		c.counters.update(func(s *Stats) { s.CloseFailures++ })
		if c.cfg.Events.CloseFailed == nil {
			c.cfg.Logger.WarnContext(ctx, "agent not removed", "endpoint", t.w.ep.Name, "sample_key", t.a.Key, "error", err)
		}
		c.cfg.Events.closeFailed(t.a, t.w.ep.Name, err)
	}
}

// sample makes a sample of a reply: its rows, checked, and its reward. It owns
// all of its memory.
func (t *try) sample(ctx context.Context, r *Reply) (*tokenize.Sample, error) {
	cfg := &t.w.c.cfg
	s := t.facts(r)
	if err := checkEnd(s, r); err != nil {
		return nil, err
	}

	t.enter(StagePrompt)
	calls, err := cfg.Prompter.Prompts(ctx, r)
	if err != nil {
		if ctx.Err() == nil {
			err = t.lesserEvidence(r, err)
		}
		return nil, err
	}
	t.w.c.along.note(r, calls)

	t.enter(StageAlign)
	if err := tokenize.CheckCounts(calls, r.counts()); err != nil {
		return nil, err
	}
	r.flagCalls(calls)
	if err := checkEnds(s, calls); err != nil {
		return nil, err
	}
	rows, al, err := t.w.aligner.Align(nil, calls)
	if err != nil {
		return nil, err
	}
	t.left = leftOut{cutCalls: len(al.CutCalls), cut: int64(al.Cut), emptyRows: al.EmptyRows}
	if e := t.lesser(r, calls); e != nil && (!e.part || t.affords(e)) {
		return nil, e
	}
	if n := len(al.LostCalls); n > 0 && n == len(calls) {
		return nil, nothingKnown(calls)
	}
	for i := range rows {
		if least := cfg.Require; least != nil && rows[i].Grade > *least {
			return nil, &tokenize.AlignError{
				Turn: -1, Token: -1, Reason: tokenize.ReasonGrade,
				Err: fmt.Errorf("row %d is %s, and %s is required", i, rows[i].Grade, *least),
			}
		}
		if err := rows[i].Check(cfg.Align.VocabSize); err != nil {
			return nil, fmt.Errorf("row %d: %w", i, err)
		}
	}
	s.Rows = rows
	for _, k := range al.LostCalls {
		s.Failures = append(s.Failures, lostCall(k, &calls[k]))
	}

	if err := t.score(ctx, s, r); err != nil {
		return nil, err
	}
	s.Duration = time.Since(t.cl.started)
	s.Working = s.Duration - t.cl.waited
	return s, nil
}

// nothingKnown is the failure of a sample of which no call makes a row: that of its
// first call.
func nothingKnown(calls []tokenize.Call) error {
	c := &calls[0]
	return &tokenize.AlignError{
		Turn: -1, Token: -1, Reason: c.Reason,
		Err: fmt.Errorf("no call of the sample can be trusted; the first one: %s", noteOf(c)),
	}
}

// flagCalls flags the calls whose context holds a tool result that the client made, and
// those that were taken from the server's memory: those of the first such send, and all
// later.
func (r *Reply) flagCalls(calls []tokenize.Call) {
	k, flags := 0, tokenize.Flags(0)
	for i := range r.Sends {
		if r.Sends[i].ClientTools {
			flags |= tokenize.FlagClientToolContext
		}
		if r.Sends[i].FromRecord {
			flags |= tokenize.FlagReattached
		}
		for j := range r.Sends[i].Turns {
			if r.Sends[i].Turns[j].Role != tokenize.RoleAssistant {
				continue
			}
			if k < len(calls) {
				calls[k].Flags |= flags
			}
			k++
		}
	}
}

// score rewards the sample. A scorer that fails leaves the reward null; the error
// is that of a run that is stopping, or is to stop because no sample can be scored.
func (t *try) score(ctx context.Context, s *tokenize.Sample, r *Reply) error {
	scorer := t.w.c.cfg.Scorer
	if scorer == nil {
		return nil
	}
	t.enter(StageScore)
	reward, err := scorer.Score(ctx, t.a.Task, r)
	if ctx.Err() == context.Canceled {
		return context.Cause(ctx)
	}
	if err := t.w.c.scored(t.a, err); err != nil {
		return err
	}
	if err != nil {
		reward = Reward{Details: errorDetails(err)}
	}
	if reward.Value != nil {
		v := *reward.Value
		s.Reward = &v
	}
	if len(reward.Details) > 0 {
		d := string(reward.Details)
		s.RewardDetails = &d
	}
	return nil
}
