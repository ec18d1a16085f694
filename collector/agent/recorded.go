package agent

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// The recorded type is an attempt at a task whose rollout another program drove. It implements
// collector.Agent.
//
// All data comes from the server's record. The tokens of each call come from its trace, the counts
// from the steps, and the text from the stored messages. A call without a trace is only listed in
// Reply.Missing. It does not affect later calls, because the trace of each call contains its
// complete prompt.
type recorded struct {
	*agent
	run *letta.Run
}

// ID returns "", because the agent belongs to another program and the run must not delete it.
func (*recorded) ID() string { return "" }

func (g *recorded) Run(ctx context.Context) (*collector.Reply, error) {
	g.reply = &collector.Reply{AgentID: g.run.AgentID, ServerVersion: g.version}
	if at, err := g.run.CreatedAt.Time(); err == nil && g.run.CreatedAt != "" {
		g.reply.Started = at
	}
	err := g.read(ctx)
	if g.rollout != nil && len(g.rollout.Sends) > 0 {
		g.setTexts()
	}
	return g.reply, Translate(makeFinal(g.deleted(err)))
}

func (g *recorded) read(ctx context.Context) error {
	m, err := g.readRecordNow(ctx)
	if err != nil {
		return err
	}
	if !g.run.Ended() && !letta.StepsEnded(m.steps) {
		return goneReasonf(tokenize.ReasonUnfinished, "server run %s has status %s and has not ended", g.run.ID, g.redactText(g.run.Status))
	}
	stop, wrong := g.endOfRun(m)
	calls, err := g.readCalls(ctx, m)
	if err != nil {
		return err
	}
	if len(calls) == 0 {
		return g.noTokensError(m, wrong)
	}
	if g.rollout.Before, err = g.before(ctx, m, calls); err != nil {
		return err
	}
	request, inputs := m.request()
	r, err := m.assemble(g.agent, stop, calls, inputs, false)
	if err != nil {
		return err
	}
	arena := g.newArena()
	if err := r.decode(m, g.client, arena); err != nil {
		return err
	}
	g.rollout.Run(g.run.ID).SetSteps(m.steps)
	g.reply.Model = g.model(calls)
	began, ended := m.times(g.client)
	g.recordSend(sendResult{
		request: request, ours: m.sawEmptyResult(g.rollout.Before, calls), answer: r.response, arena: arena, runID: g.run.ID,
		took: m.duration(), began: began, ended: ended,
	})
	return wrong
}

// readRecordNow reads the current state of the agent and the server's record of the run.
func (g *recorded) readRecordNow(ctx context.Context) (*runRecord, error) {
	err := g.retryLookup(ctx, func() (err error) {
		g.state, err = g.client.Agent(ctx, g.run.AgentID)
		return err
	})
	if err != nil {
		return nil, err
	}
	g.begin("")
	g.rollout.Recorded = true
	var m *runRecord
	both, within := errgroup.WithContext(ctx)
	both.Go(func() error {
		if len(g.state.MessageIDs) == 0 {
			return nil
		}
		err := g.retryLookup(within, func() (err error) {
			g.rollout.SystemText, err = g.client.SystemText(within, g.state.MessageIDs[0])
			return err
		})
		if ctx.Err() == nil && !isTemporary(err) {
			err = nil // without the system message, the system text is not compared
		}
		return err
	})
	both.Go(func() (err error) {
		m, err = g.readRecord(within, g.run)
		return err
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	m.recorded = true
	return m, nil
}

// endOfRun returns the stop reason of the run. If the run failed and the server stored the cause,
// endOfRun also returns an error.
func (g *recorded) endOfRun(m *runRecord) (letta.StopReason, error) {
	stop := g.run.StopReason
	if n := len(m.steps); stop == "" && n > 0 {
		stop = m.steps[n-1].StopReason
	}
	switch collector.StatusOf(string(stop)) {
	case collector.StatusError, collector.StatusCancelled:
	default:
		return stop, nil
	}
	why := g.run.Failure()
	for i := range m.steps {
		if data := m.steps[i].ErrorData; why == "" && data != nil {
			why = data.Message
		}
	}
	if why == "" {
		return stop, nil // the server stored no cause
	}
	return stop, runFailed("server run %s has status %s: %s", g.run.ID, g.redactText(g.run.Status), g.redactText(why))
}

// untracedMost is the number of missing traces at the start of a run after which no more traces are
// requested.
const untracedMost = 2

// readCalls reads the trace of every step with an output. From m.steps, it removes every failed
// step without output and every step with unknown tokens.
func (g *recorded) readCalls(ctx context.Context, m *runRecord) ([]callRecord, error) {
	var calls []callRecord
	var kept []letta.Step
	for i := range m.steps {
		s := m.steps[i]
		switch {
		case s.CompletionTokens == nil || *s.CompletionTokens == 0:
			if s.Status == "success" {
				if g.wasAborted(ctx, s.ID) {
					return nil, runFailed("the engine aborted the call of step %s before its first token", s.ID)
				}
				kept = append(kept, s)
			}
			continue
		case m.summarized(s.ID):
			g.addMissing(len(calls), goneReasonf(tokenize.ReasonCompacted, "step %s ran a compaction and has no trace", s.ID))
			continue
		case len(calls) == 0 && len(g.reply.Missing) >= untracedMost:
			g.addMissing(0, goneReasonf(tokenize.ReasonNoTrace, "step %s: the server has no traces of this run", s.ID))
			continue
		}
		c := callRecord{step: &s}
		switch err := c.read(ctx, g.agent); {
		case errors.Is(err, collector.ErrGone):
			g.addMissing(len(calls), err)
		case err != nil:
			return nil, err
		default:
			calls, kept = append(calls, c), append(kept, s)
		}
	}
	m.steps = kept
	k := 0
	for i := range kept { // calls must point into m.steps, not to copies
		if kept[i].CompletionTokens != nil && *kept[i].CompletionTokens > 0 {
			calls[k].step = &kept[i]
			k++
		}
	}
	return calls, nil
}

// historyMost is the maximum number of earlier messages that are read. No context contains more
// messages than this.
const historyMost = 1000

// If the run's traces show calls of an earlier run, this method reads the messages that precede the
// run. Only these messages show whether a client answered those calls.
func (g *recorded) before(ctx context.Context, m *runRecord, calls []callRecord) (earlier letta.Messages, err error) {
	if len(m.messages) == 0 || !m.showsOthers(calls) {
		return nil, nil
	}
	err = g.retryLookup(ctx, func() error {
		earlier, err = g.client.MessagesBefore(ctx, g.run.AgentID, m.messages[0].ID, historyMost)
		return err
	})
	if err != nil && ctx.Err() == nil && !isTemporary(err) {
		return nil, nil // then only the token counts of the prompts can show whether a client answered
	}
	return earlier, err
}

func (m *runRecord) showsOthers(calls []callRecord) bool {
	own := map[string]bool{}
	for i := range m.messages {
		for k := range m.messages[i].ToolCalls {
			own[m.messages[i].ToolCalls[k].ToolCallID] = true
		}
	}
	for i := range calls {
		for k := range calls[i].shown {
			for _, c := range calls[i].shown[k].ToolCalls {
				if !own[c.ID] {
					return true
				}
			}
		}
	}
	return false
}

// sawEmptyResult reports whether the prompt of any call contains the result of a client tool or a
// denial, which the model sees as empty text. The parameter before contains the messages that
// precede the run.
func (m *runRecord) sawEmptyResult(before letta.Messages, calls []callRecord) bool {
	ours := map[string]bool{}
	for _, list := range []letta.Messages{before, m.messages} {
		for i := range list {
			for k := range list[i].Approvals {
				a := &list[i].Approvals[k]
				ours[a.ToolCallID] = a.Type == "tool" || a.Type == "approval" && !a.Approve
			}
		}
	}
	for i := range calls {
		for k := range calls[i].shown {
			if shown := &calls[i].shown[k]; shown.Role == "tool" && ours[shown.ToolCallID] {
				return true
			}
		}
	}
	return false
}

// addMissing records a call with unknown tokens. The parameter before is the number of calls with
// known tokens that precede it.
func (g *recorded) addMissing(before int, err error) {
	reason, text := tokenize.ReasonNoTrace, err.Error()
	if e, ok := errors.AsType[*goneError](err); ok {
		reason, text = max(e.reason, tokenize.ReasonNoPrompt), e.text
	}
	g.reply.Missing = append(g.reply.Missing, collector.MissingCall{Before: before, Reason: reason, Note: text})
}

// noTokensError returns the error for a run without any known tokens.
func (g *recorded) noTokensError(m *runRecord, ended error) error {
	missing := g.reply.Missing
	g.reply.Missing = nil
	switch {
	case ended != nil:
		return ended
	case len(missing) > 0:
		return goneReasonf(missing[0].Reason, "%s; server run %s has no usable call", serverText(missing[0].Note), g.run.ID)
	}
	return goneReasonf(tokenize.ReasonNoTurns, "server run %s has status %s and no step with output", g.run.ID, g.redactText(g.run.Status))
}

// model returns the handle of the model that the run used. The agent might use another model now.
func (g *recorded) model(calls []callRecord) string {
	if model := calls[0].step.ModelHandle; model != "" {
		return model
	}
	return g.state.LLMConfig.Handle
}

// Prompts also returns an error if the engine aborted a call, because only the other program could
// repeat the call.
func (g *recorded) Prompts(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
	calls, err := g.agent.Prompts(ctx, r)
	for k := range calls {
		if err == nil && calls[k].FinishReason == tokenize.FinishAbort {
			return nil, runFailed("the engine aborted call %d of server run %s after %d tokens", k+1, g.run.ID, len(calls[k].OutputIDs))
		}
	}
	return calls, err
}

func (m *runRecord) summarized(stepID string) bool {
	for i := range m.messages {
		if a := &m.messages[i]; a.StepID == stepID && (a.Type == letta.TypeSummary || a.Type == letta.TypeUser && record.IsAlert(a.Content.String())) {
			return true
		}
	}
	return false
}

func runFailed(format string, args ...any) error {
	e, _ := errors.AsType[*goneError](goneErrorf(format, args...)) // always a *goneError
	return &goneError{error: fmt.Errorf("%w: %s", collector.ErrAgent, e.text), redacted: e.redacted, text: e.text}
}

// makeFinal turns an ErrGone error into a final error, because the record will not become more
// complete.
func makeFinal(err error) error {
	e, ok := errors.AsType[*goneError](err)
	if !ok || !errors.Is(err, collector.ErrGone) {
		return err
	}
	reason := e.reason
	if reason == tokenize.ReasonNone {
		reason = tokenize.ReasonNoTurns
	}
	why := &tokenize.AlignError{Turn: -1, Token: -1, Reason: reason, Err: errors.New(e.text)}
	return &goneError{error: why, redacted: reason.String() + ": " + e.redacted, reason: reason, text: e.text}
}
