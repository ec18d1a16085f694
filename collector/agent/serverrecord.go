package agent

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/collector/letta"
)

// A runRecord is the server's record of an ended server run whose answer was not read.
type runRecord struct {
	run      *letta.Run
	steps    []letta.Step // oldest first
	messages letta.Messages
	// recorded is true if another program drove the run. Prompts then come only from traces, so the
	// text of tool results does not have to be exact.
	recorded bool
}

func (g *agent) readRecord(ctx context.Context, run *letta.Run) (*runRecord, error) {
	g.maybeRunning = false
	kept, m := g.rollout.Run(run.ID), &runRecord{run: run}
	both, within := errgroup.WithContext(ctx)
	both.Go(func() error {
		return g.retryLookup(within, func() (err error) { m.steps, err = kept.Steps(within); return err })
	})
	both.Go(func() error {
		return g.retryLookup(within, func() (err error) { m.messages, err = kept.Messages(within); return err })
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	return m, nil
}

// stopReason returns the stop reason of the run. It returns an error unless the agent itself ended
// the run.
func (m *runRecord) stopReason(g *agent) (letta.StopReason, error) {
	var stop letta.StopReason
	switch {
	case m.run.StopReason != "":
		stop = m.run.StopReason
	case g.conversation != nil && len(m.steps) > 0:
		stop = m.steps[len(m.steps)-1].StopReason
	}
	switch stop {
	case letta.StopEndTurn, letta.StopToolRule, letta.StopMaxSteps, letta.StopMaxTokensExceeded, letta.StopRequiresApproval:
		return stop, nil
	case "":
		failure := m.run.Failure()
		if failure == "" {
			return "", goneErrorf("server run %s has status %s and no stop reason", m.run.ID, g.redactText(m.run.Status))
		}
		return "", goneErrorf("server run %s has status %s and no stop reason: %s", m.run.ID, g.redactText(m.run.Status), g.redactText(failure))
	default:
		return "", goneErrorf("server run %s has status %s and stop reason %s", m.run.ID, g.redactText(m.run.Status), g.redactText(string(stop)))
	}
}

// checkSteps returns an error if a message from the model names a step that the server does not
// list.
func (m *runRecord) checkSteps() error {
	for i := range m.messages {
		switch m.messages[i].Type {
		case letta.TypeAssistant, letta.TypeToolCall, letta.TypeApprovalRequest:
		default:
			continue // a message from the client, or a tool result, which can name a step of an earlier run
		}
		id := m.messages[i].StepID
		if !slices.ContainsFunc(m.steps, func(s letta.Step) bool { return s.ID == id }) {
			return goneErrorf("server run %s has a message of step %q but does not list the step", m.run.ID, id)
		}
	}
	return nil
}

func (m *runRecord) text(stepID string) (string, bool) {
	for i := range m.messages {
		if a := &m.messages[i]; a.Type == letta.TypeAssistant && a.StepID == stepID {
			return a.Content.String(), true
		}
	}
	return "", false
}

// This method lists the tool messages (tool returns) of a step. If stepID is empty, it lists the
// tool messages before the first step. Those messages answer calls of an earlier run and name a
// step of that run.
func (m *runRecord) returns(stepID string) []*letta.Message {
	var list []*letta.Message
	for i := range m.messages {
		r := &m.messages[i]
		if r.Type != letta.TypeToolReturn {
			continue
		}
		of := r.StepID
		own := slices.ContainsFunc(m.steps, func(s letta.Step) bool { return s.ID == of })
		if own && of == stepID || !own && stepID == "" {
			list = append(list, r)
		}
	}
	return list
}

// serverTimes returns the times at which the run started and ended, by the server's clock. ok is
// false if they are unknown.
func (m *runRecord) serverTimes() (began, ended time.Time, ok bool) {
	began, err := m.run.CreatedAt.Time()
	if err != nil {
		return time.Time{}, time.Time{}, false
	}
	ended, err = m.run.CompletedAt.Time()
	return began, ended, err == nil
}

// times returns the times at which the run started and ended, by the local clock. They are zero if
// unknown.
func (m *runRecord) times(c *letta.Client) (began, ended time.Time) {
	offset, known := c.Clock()
	began, ended, ok := m.serverTimes()
	if !known || !ok {
		return time.Time{}, time.Time{}
	}
	return began.Add(-offset), ended.Add(-offset)
}

// duration returns the duration of the run by the server's clock, or 0 if unknown.
func (m *runRecord) duration() time.Duration {
	began, ended, ok := m.serverTimes()
	if !ok {
		return 0
	}
	return max(0, ended.Sub(began))
}
