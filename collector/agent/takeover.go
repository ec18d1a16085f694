package agent

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// recall takes the next server run of an earlier process for the answer to messages.
func (g *agent) recall(ctx context.Context, messages letta.InputMessages, made bool, reply *collector.Reply) (*letta.LettaResponse, error) {
	answer, err := g.recallNext(ctx, messages, made, reply)
	return answer, g.unreadable(ctx, err)
}

// unreadable is err, as one that wraps collector.ErrGone where a look-up was refused or
// its answer cannot be read: a new attempt makes no such look-up.
func (g *agent) unreadable(ctx context.Context, err error) error {
	if class := collector.Classify(Translate(err)); err == nil || ctx.Err() != nil || class.Retryable() || class.Rerollable() || class.Fatal() {
		return err
	}
	return gone("agent %s: %w", g.state.ID, err)
}

func (g *agent) recallNext(ctx context.Context, messages letta.InputMessages, made bool, reply *collector.Reply) (*letta.LettaResponse, error) {
	if g.guessed {
		return nil, g.guessedText()
	}
	m, err := g.peek(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := m.stopReason(g); err != nil {
		return nil, cmp.Or(g.policyFailed(ctx, m.run), err)
	}
	if asked, _ := m.asked(); !sameInput(asked, messages) {
		return nil, gone("server run %s was asked for something else than message %d of the task", m.run.ID, len(reply.Sends)+1)
	}
	answer, err := g.remember(ctx, m, messages, made, reply)
	if err != nil {
		return nil, err
	}
	g.queue, g.head = g.queue[1:], nil
	return answer, nil
}

// policyFailed is the failure of a run that ended because of what the model wrote; nil
// where it ended for another reason. Such a rollout is not gone: to make it again for
// nothing would spare the policy a failure whenever a process died with it.
func (g *agent) policyFailed(ctx context.Context, run *letta.Run) error {
	if run.Status != "failed" || run.StopReason != "" {
		return nil
	}
	err := g.runError(ctx, run, &letta.APIError{Op: "send", Status: http.StatusInternalServerError, Detail: "the answer was lost", Err: letta.ErrServer})
	if !collector.Classify(Translate(err)).Rerollable() {
		return nil
	}
	return err
}

// peek waits for the next server run of the queue.
func (g *agent) peek(ctx context.Context) (*memory, error) {
	if g.head == nil {
		m, err := g.await(ctx, g.queue[0].ID)
		if err != nil {
			return nil, err
		}
		g.head = m
	}
	return g.head, nil
}

// remember adds the send that made the run to the reply, from the server's memory.
func (g *agent) remember(ctx context.Context, m *memory, messages letta.InputMessages, made bool, reply *collector.Reply) (*letta.LettaResponse, error) {
	request := g.request(messages)
	r, err := m.rebuild(ctx, g, len(messages), g.scrubs())
	if err != nil {
		return nil, err
	}
	arena := g.arena()
	if err := r.decode(m, g.client, arena); err != nil {
		return nil, err
	}
	g.guessed = r.guessed
	if len(reply.Sends) == 0 && r.system != nil && g.rollout.SystemText != "" && g.conversation == nil && g.cfg.OverrideSystem == "" {
		g.rollout.SystemText = *r.system // not what the agent's tools made of it since
	}
	g.keep(reply, request, r.response, arena, m.run.ID, m.duration(), made)
	reply.Sends[len(reply.Sends)-1].FromRecord = true
	return r.response, nil
}

// guessedText is why nothing may come after a send that was rebuilt to a guess: its
// text would be in the prompts of what comes.
func (g *agent) guessedText() error {
	return gone("agent %s: the text of its last tool is not known to the last character", g.state.ID)
}

// duration is how long the run took, by the server's clock.
func (m *memory) duration() time.Duration {
	if m.run.CreatedAt == "" || m.run.CompletedAt == "" {
		return 0
	}
	began, err := m.run.CreatedAt.Time()
	if err != nil {
		return 0
	}
	ended, err := m.run.CompletedAt.Time()
	if err != nil {
		return 0
	}
	return max(0, ended.Sub(began))
}

// scrubs says that the server deletes the text before a call when it makes the next
// prompt. Source: helpers/reasoning_helper.py:22-48.
func (g *agent) scrubs() bool {
	c := &g.state.LLMConfig
	off := func(b *bool) bool { return b != nil && !*b }
	return off(c.PutInnerThoughtsInKwargs) && off(c.EnableReasoner) && c.MaxReasoningTokens != nil && *c.MaxReasoningTokens == 0 &&
		g.cfg.OverrideModel == ""
}

// reaction is what answers the pending calls: what an earlier process answered, where
// the server has a run for it, so that no tool of this side runs twice.
func (g *agent) reaction(ctx context.Context, pending []letta.ToolCall) (input letta.InputMessage, client bool, err error) {
	if len(g.queue) == 0 {
		return g.answer(ctx, pending)
	}
	m, err := g.peek(ctx)
	if err != nil {
		return nil, false, g.unreadable(ctx, err)
	}
	messages, client := m.asked()
	if len(messages) != 1 || !answersAll(messages[0], pending) {
		return nil, false, gone("server run %s does not answer the calls that wait", m.run.ID)
	}
	return messages[0], client, nil
}

// answersAll says that the message answers every pending call.
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

// settle checks, at the end of an attempt that was taken over, that the server did
// nothing that the reply does not tell: a request of the dead process may have come
// late.
func (g *agent) settle(ctx context.Context, reply *collector.Reply) error {
	switch {
	case len(g.queue) > 0:
		return gone("agent %s has %d more server runs than the task asked for", g.state.ID, len(g.queue))
	case !g.resumed:
		return nil
	}
	var runs []letta.Run
	err := g.patiently(ctx, func() (err error) {
		runs, err = g.serverRuns(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if len(runs) != len(reply.Sends) {
		return gone("agent %s has %d server runs for %d sends", g.state.ID, len(runs), len(reply.Sends))
	}
	return nil
}

// patience is for how long a server that does not answer look-ups is asked again.
const patience = 2 * time.Minute

// patiently repeats a look-up that fails for a reason that may pass. It gives up where
// another server makes the sample meanwhile.
func (g *agent) patiently(ctx context.Context, look func() error) error {
	began := time.Now()
	for pause := time.Second; ; pause = min(2*pause, lastLook) {
		err := look()
		if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
			g.outage = true
		}
		if err == nil || ctx.Err() != nil || !passing(err) || time.Since(began) > patience {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			continue
		case <-g.attempt.Away:
		case <-ctx.Done():
		}
		timer.Stop()
		return err
	}
}

func passing(err error) bool {
	return errors.Is(err, letta.ErrConnection) || errors.Is(err, letta.ErrUnavailable) ||
		errors.Is(err, letta.ErrBusy) || errors.Is(err, letta.ErrServer) || errors.Is(err, letta.ErrTimeout)
}

// arena is a fresh one, freed when the agent is closed.
func (g *agent) arena() *tokenize.Reply {
	r := g.backend.reply()
	g.arenas = append(g.arenas, r)
	return r
}
