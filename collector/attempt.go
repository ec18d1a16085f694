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
// memory, what is left of the tokens.
func (w *worker) attempt(ctx context.Context, cl *claim) (failed *tokenize.Sample, err error) {
	c := w.c
	cl.attempts++
	a := cl.attempt(c.cfg.RunID)
	t := &try{w: w, a: a, cl: cl, began: time.Now()}
	if cl.started.IsZero() {
		cl.started = t.began
	}
	c.counters.attempt(a.N)
	c.cfg.Events.attemptStarted(a, w.ep.Name)
	defer func() {
		class := Classify(err)
		if err != nil && ctx.Err() != nil {
			class = ClassCancelled
		}
		c.counters.attemptFailed(class)
		c.cfg.Events.attemptFinished(Result{
			Attempt: a, Endpoint: w.ep.Name, Err: err, Class: class,
			Started: t.began, Duration: time.Since(t.began),
			Sampled: t.gain.sampled, Trained: t.gain.trained, Rows: t.gain.rows,
		})
	}()

	// What waits for the sink must not time out: only up to the reward is the
	// attempt's own time.
	timed, cancel := context.WithTimeoutCause(ctx, c.cfg.AttemptTimeout, errOutOfTime)
	defer cancel()

	t.enter(StageOpen)
	agent, err := w.ep.Backend.Open(timed, a)
	if err != nil {
		err = t.failed(timed, err)
		return t.failure(nil, err), err
	}
	defer t.close(ctx, agent)

	t.enter(StageRun)
	reply, err := agent.Run(timed)
	if err != nil {
		err = t.failed(timed, err)
		return t.failure(reply, err), err
	}
	s, err := t.sample(timed, reply)
	if err != nil {
		err = t.failed(timed, err)
		return t.failure(reply, err), err
	}
	t.enter(StageAppend)
	t.gain = gainOf(s)
	t.gain.leftOut = t.left
	if err := w.append(ctx, s, ClassNone, t.gain); err != nil {
		t.gain = gain{}
		err = t.failed(ctx, err)
		return t.failure(reply, err), err
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
}

func (cl *claim) attempt(runID string) Attempt {
	return Attempt{Task: cl.task, Key: cl.key, Index: cl.index, GroupSize: cl.groupSize, N: cl.attempts, RunID: runID}
}

func (t *try) enter(s Stage) {
	t.stage = s
	t.w.c.counters.stage(t.w.slot, t.a.N, s, time.Now())
}

// failed says where err came from; timed is the attempt's own context, whose end
// is the true reason of whatever failed then.
func (t *try) failed(timed context.Context, err error) error {
	if errors.Is(context.Cause(timed), errOutOfTime) && !errors.Is(err, errOutOfTime) {
		err = fmt.Errorf("%w (%v): %w", errOutOfTime, t.w.c.cfg.AttemptTimeout, err)
	}
	return &AttemptError{Task: t.a.Task.ID, Index: t.a.Index, Attempt: t.a.N, Stage: t.stage, Err: err}
}

// close removes the agent, in a time of its own: also when the run is stopping.
func (t *try) close(ctx context.Context, agent Agent) {
	c := t.w.c
	t.enter(StageClose)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.CloseTimeout)
	defer cancel()
	if err := agent.Close(ctx); err != nil {
		c.counters.update(func(s *Stats) { s.CloseFailures++ })
		c.cfg.Events.closeFailed(t.a, t.w.ep.Name, err)
		c.cfg.Logger.WarnContext(ctx, "agent not removed", "endpoint", t.w.ep.Name, "sample_key", t.a.Key, "error", err)
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
		return nil, err
	}

	t.enter(StageAlign)
	if err := tokenize.CheckCounts(calls, r.counts()); err != nil {
		return nil, err
	}
	r.flagClientTools(calls)
	rows, al, err := t.w.aligner.Align(nil, calls)
	if err != nil {
		return nil, err
	}
	t.left = leftOut{cutCalls: len(al.CutCalls), cut: int64(al.Cut), emptyRows: al.EmptyRows}
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
	if n := len(rows); n > 0 && s.Status == StatusTruncated {
		rows[n-1].Truncated = true
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

// flagClientTools flags the calls whose context holds a tool result that the client
// made: those of the first send with one, and all later.
func (r *Reply) flagClientTools(calls []tokenize.Call) {
	k, seen := 0, false
	for i := range r.Sends {
		seen = seen || r.Sends[i].ClientTools
		for j := range r.Sends[i].Turns {
			if r.Sends[i].Turns[j].Role != tokenize.RoleAssistant {
				continue
			}
			if seen && k < len(calls) {
				calls[k].Flags |= tokenize.FlagClientToolContext
			}
			k++
		}
	}
}

// score rewards the sample. A scorer that fails leaves the reward null; the error
// is that of a run that is stopping.
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
	if err != nil {
		t.w.c.counters.update(func(s *Stats) { s.Unscored++ })
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
