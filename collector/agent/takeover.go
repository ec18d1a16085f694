package agent

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// takeNext returns the answer to the input from the next server run that an earlier process
// started.
func (g *agent) takeNext(ctx context.Context, in *input) (*letta.LettaResponse, error) {
	answer, err := g.takeNextOnce(ctx, in)
	return answer, g.unreadableError(ctx, err)
}

func (g *agent) takeNextOnce(ctx context.Context, in *input) (*letta.LettaResponse, error) {
	m, err := g.firstRun(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := m.stopReason(g); err != nil {
		return nil, cmp.Or(g.policyFailed(ctx, m.run), err)
	}
	if asked, _ := m.sentInput(); !sameInput(asked, in.messages) {
		return nil, goneErrorf("the input of server run %s is not message %d of the task", m.run.ID, len(g.reply.Sends)+1)
	}
	answer, err := g.rebuildSend(ctx, m, in, nil)
	if err != nil {
		return nil, err
	}
	g.earlier.runs, g.earlier.first = g.earlier.runs[1:], nil
	return answer, nil
}

func (g *agent) firstRun(ctx context.Context) (*runRecord, error) {
	if g.earlier.first == nil {
		m, err := g.await(ctx, g.earlier.runs[0].ID)
		if err != nil {
			return nil, err
		}
		g.earlier.first = m
	}
	return g.earlier.first, nil
}

// rebuildSend rebuilds the answer to a send from the server's record of the run and adds the answer
// to the reply. If this process made the send, lost is the reason why the answer was not read.
func (g *agent) rebuildSend(ctx context.Context, m *runRecord, in *input, lost error) (*letta.LettaResponse, error) {
	request := g.request(in.messages)
	r, err := m.rebuild(ctx, g, len(in.messages), g.rollout.Scrubs(request))
	if err != nil {
		return nil, err
	}
	arena := g.newArena()
	if err := r.decode(m, g.client, arena); err != nil {
		return nil, err
	}
	g.inexact = r.inexact
	if len(g.reply.Sends) == 0 && r.system != nil && g.rollout.SystemText != "" && g.conversation == nil && g.cfg.OverrideSystem == "" {
		g.rollout.SystemText = *r.system // the text before the agent's tools changed it
	}
	began, ended := m.times(g.client)
	g.recordSend(sendResult{
		request: request, ours: in.ours, answer: r.response, arena: arena, runID: m.run.ID, took: m.duration(),
		began: began, ended: ended, fromRecord: true, lost: lost,
	})
	return r.response, nil
}

// unreadableError handles the error of a lookup. If the server rejected the lookup or its answer
// cannot be parsed, unreadableError wraps err in collector.ErrGone, because a new attempt needs no
// lookup. It returns other errors unchanged.
func (g *agent) unreadableError(ctx context.Context, err error) error {
	if class := collector.Classify(Translate(err)); err == nil || ctx.Err() != nil || class.Retryable() || class.DataRetryable() || class.Fatal() {
		return err
	}
	return goneErrorf("agent %s: %w", g.state.ID, err)
}

// policyFailed returns the failure of a server run if the model's output caused it, or nil. A
// rollout that failed in this way does not count as gone. If it did, a crash of the process would
// earn a free attempt and hide the policy's failure.
func (g *agent) policyFailed(ctx context.Context, run *letta.Run) error {
	if run.Status != "failed" || run.StopReason != "" {
		return nil
	}
	err := g.runError(ctx, run, &letta.APIError{Op: "send", Status: http.StatusInternalServerError, Detail: "the answer was lost", Err: letta.ErrServer})
	if !collector.Classify(Translate(err)).DataRetryable() {
		return nil
	}
	return err
}

// reactedBefore returns the earlier process's answer to the pending calls.
func (g *agent) reactedBefore(ctx context.Context, pending []letta.ToolCall) (*input, error) {
	m, err := g.firstRun(ctx)
	if err != nil {
		return nil, g.unreadableError(ctx, err)
	}
	messages, ours := m.sentInput()
	if len(messages) != 1 || !answersAll(messages[0], pending) {
		return nil, goneErrorf("server run %s does not answer the pending tool calls", m.run.ID)
	}
	return &input{messages: messages, ours: ours}, nil
}

func answersAll(message letta.InputMessage, pending []letta.ToolCall) bool {
	var ids []string
	switch m := message.(type) {
	case *letta.ToolReturnCreate:
		for i := range m.ToolReturns {
			ids = append(ids, m.ToolReturns[i].ToolCallID)
		}
	case *letta.ApprovalCreate:
		for _, a := range m.Approvals {
			switch a := a.(type) {
			case *letta.ToolResult:
				ids = append(ids, a.ToolCallID)
			case *letta.ApprovalReturn:
				ids = append(ids, a.ToolCallID)
			}
		}
	default:
		return false
	}
	return len(ids) == len(pending) &&
		!slices.ContainsFunc(pending, func(c letta.ToolCall) bool { return !slices.Contains(ids, c.ToolCallID) })
}

// checkNoMoreRuns returns an error if the agent has server runs that are not in the reply. It is
// called at the end of an attempt that was taken over, because a request from the dead process can
// arrive late.
func (g *agent) checkNoMoreRuns(ctx context.Context) error {
	switch {
	case len(g.earlier.runs) > 0:
		return goneErrorf("agent %s has more server runs than the task needs (%d too many)", g.state.ID, len(g.earlier.runs))
	case !g.earlier.resumed:
		return nil
	}
	var runs []letta.Run
	err := g.retryLookup(ctx, func() (err error) {
		runs, err = g.serverRuns(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if len(runs) != len(g.reply.Sends) {
		return goneErrorf("agent %s has %d server runs for %d sends", g.state.ID, len(runs), len(g.reply.Sends))
	}
	return nil
}
