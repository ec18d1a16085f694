package agent

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

type callRecord struct {
	step    *letta.Step
	trace   *record.Trace
	answer  *record.Answer
	request *letta.TraceRequest
	shown   []letta.TraceMessage // the messages in the request
}

const tracesAtOnce = 4

// This method reads the trace of every step with an output. It first reads a single trace, so that
// a server without traces gets only one request.
func (m *runRecord) calls(ctx context.Context, g *agent) ([]callRecord, error) {
	var calls []callRecord
	for i := range m.steps {
		s := &m.steps[i]
		switch {
		case s.Status != "success":
			return nil, goneErrorf("step %s has status %s", s.ID, g.redactText(s.Status))
		case s.CompletionTokens == nil:
			return nil, goneErrorf("step %s has no completion token count", s.ID)
		case *s.CompletionTokens > 0:
			calls = append(calls, callRecord{step: s})
		case g.wasAborted(ctx, s.ID):
			return nil, goneErrorf("the engine aborted the call of step %s", s.ID)
		}
	}
	if len(calls) == 0 {
		return nil, goneErrorf("server run %s has no step with output", m.run.ID)
	}
	if err := calls[0].read(ctx, g); err != nil {
		return nil, err
	}
	errs := make([]error, len(calls)) // the first error in the order of calls is returned
	var all errgroup.Group
	all.SetLimit(tracesAtOnce)
	for i := range calls[1:] {
		all.Go(func() error {
			errs[i] = calls[i+1].read(ctx, g)
			return nil
		})
	}
	_ = all.Wait() // the errors are in errs
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return calls, nil
}

func (c *callRecord) read(ctx context.Context, g *agent) error {
	t, err := g.lateTrace(ctx, c.step.ID)
	if err != nil {
		return err
	}
	if t == nil {
		return goneReasonf(tokenize.ReasonNoTrace, "step %s has no trace, so its tokens are lost", c.step.ID)
	}
	c.trace = t
	if c.answer, err = t.Answer(); err != nil {
		return goneReasonf(tokenize.ReasonNoTrace, "trace of step %s: response: %w", c.step.ID, err)
	}
	if c.request, err = t.Request(); err == nil {
		c.shown, err = t.Messages()
	}
	if err != nil {
		return goneReasonf(tokenize.ReasonNoTrace, "trace of step %s: request: %w", c.step.ID, err)
	}
	if c.answer.OutputIDs.IsNull() {
		return goneReasonf(c.withoutTokens(), "trace of step %s has no token ids", c.step.ID)
	}
	return nil
}

// withoutTokens returns the reason why a trace has no tokens: the server does not store bodies, or
// the call did not use the native path.
func (c *callRecord) withoutTokens() tokenize.Reason {
	if c.answer.Text == "" && c.answer.Logprobs.IsNull() && c.answer.Finish == "" && len(c.shown) == 0 {
		return tokenize.ReasonNoTrace
	}
	return tokenize.ReasonNotNative
}

// lateTrace returns the trace of a step, or nil. It retries, because the trace can appear some time
// after the run has ended.
func (g *agent) lateTrace(ctx context.Context, stepID string) (t *record.Trace, err error) {
	const tries, pause = 3, 400 * time.Millisecond
	for i := 1; ; i++ {
		err = g.retryLookup(ctx, func() error {
			t, err = g.rollout.TraceSoon(ctx, stepID)
			return err
		})
		if t != nil || err != nil || i == tries {
			return t, err
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}
