package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// This file is the ordinary way of an attempt, from top to bottom:
//
//	open     make the agent, check that it gives token data, read its system text
//	Run      for each message of the task: send, and answer what the server asks
//	Prompts  find the prompt of every call
//	Close    free the memory of the replies, delete the agent
//
// Three calls leave this way: takeNext, where an earlier process has sent already
// (takeover.go); recoverSend, where the connection was lost (recover.go); and explain,
// where the server says that a send failed (explain.go).

// An agent is one attempt's agent on the server. It implements collector.Agent.
type agent struct {
	// backend made it, and has the room for replies and the arenas.
	backend *Backend
	client  *letta.Client
	// cfg has the overrides of the task in it.
	cfg     Config
	attempt collector.Attempt
	// version is what the server calls itself.
	version string

	// state is the agent as the server described it before the first send.
	state *letta.AgentState
	// conversation is where messages are sent; nil: to the agent itself.
	conversation *letta.Conversation
	// rollout is all that is known of the attempt; prompts are found from it.
	rollout *record.Rollout
	// reply is what Run returns.
	reply *collector.Reply

	// arenas are the memory of the replies. Close frees it.
	arenas []*tokenize.Reply
	// held is how many bytes of backend.room the replies take.
	held int64

	// spans are those of reply.Sends, nil where another process sent; span is under way.
	spans []*policy.Span
	span  *policy.Span

	// told are the server runs that Attempt.ServerRun was told of.
	told map[string]bool
	// mayRun reports whether the server may still be at work on a send that has no
	// answer: Close asks it to stop.
	mayRun bool
	// inexact reports whether the text of the last tool is not known to the last
	// character. Nothing may be sent any more: that text would be in the prompts.
	inexact bool
	// outage reports whether the server could not be reached during a look-up.
	outage atomic.Bool
	// earlier is what another process did with the agent; nil: this one made it.
	earlier *earlier
}

// A Prompter finds the prompt of every call of a reply, as [collector.Agent] says. It is
// used from many goroutines at once.
type Prompter interface {
	// Prompts may read whatever rollout can fetch: the agent is still there.
	Prompts(ctx context.Context, r *collector.Reply, rollout *record.Rollout) ([]tokenize.Call, error)
	// Prefetch fetches what Prompts will read of a send that was answered with turns, while
	// the server works at the next one. It returns soon after ctx is done.
	Prefetch(ctx context.Context, rollout *record.Rollout, of record.Send, turns []tokenize.Turn)
}

// open makes the agent of an attempt and prepares it for the first send. Where that
// fails, the agent is deleted again.
func (b *Backend) open(ctx context.Context, a collector.Attempt) (*agent, error) {
	cfg, err := b.cfg.overridden(a.Task.Agent)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", collector.ErrRejected, err)
	}
	version, err := b.client.Version(ctx) // asked once for all agents
	if err != nil {
		return nil, err
	}
	state, err := b.create(ctx, &cfg, a)
	if err != nil {
		return nil, err
	}
	g := &agent{backend: b, client: b.client, cfg: cfg, attempt: a, version: version, state: state}
	if err := g.prepare(ctx); err != nil {
		return nil, b.abandon(ctx, state.ID, err)
	}
	return g, nil
}

// prepare does what must be done between making the agent and the first send.
func (g *agent) prepare(ctx context.Context) error {
	if err := g.state.CheckTurns(); err != nil {
		return err
	}
	if g.cfg.KeepReasoning {
		if err := g.keepReasoning(ctx); err != nil {
			return err
		}
	}
	// Neither needs the other's answer.
	both, within := errgroup.WithContext(ctx)
	if g.cfg.Conversation && g.conversation == nil {
		both.Go(func() (err error) {
			g.conversation, err = g.client.CreateConversation(within, g.state.ID)
			return err
		})
	}
	system := ""
	both.Go(func() (err error) {
		system, err = g.systemText(within)
		return err
	})
	if err := both.Wait(); err != nil {
		return err
	}
	g.begin(system)
	return nil
}

// keepReasoning stops the server from deleting the text before tool calls. A create
// forces enable_reasoner off for a model that the server does not list as a reasoner; a
// change afterwards stays (agent_manager.py:344-360, 778-784).
func (g *agent) keepReasoning(ctx context.Context) error {
	config, err := g.state.LLMConfig.JSON.With("enable_reasoner", "true")
	if err != nil {
		return err
	}
	changed, err := g.client.PatchAgent(ctx, g.state.ID, map[string]any{"llm_config": json.RawMessage(config)})
	if err != nil {
		return err
	}
	if on := changed.LLMConfig.EnableReasoner; on == nil || !*on {
		return fmt.Errorf("%w: keep reasoning: the server did not take llm_config.enable_reasoner", collector.ErrUnusable)
	}
	g.state.LLMConfig = changed.LLMConfig
	return g.state.CheckTurns()
}

// systemText reads the text of the agent's system message, where that is asked for.
func (g *agent) systemText(ctx context.Context) (string, error) {
	if !g.cfg.SystemText || len(g.state.MessageIDs) == 0 {
		return "", nil
	}
	return g.client.SystemText(ctx, g.state.MessageIDs[0])
}

// begin opens the record of the attempt.
func (g *agent) begin(system string) {
	g.rollout = record.New(g.client)
	g.rollout.Engines = &g.backend.engines
	g.rollout.Agent, g.rollout.Conversation, g.rollout.SystemText = g.state, g.conversation, system
	g.rollout.Late = g.earlier.waiting()
}

// ID returns the server's name of the agent.
func (g *agent) ID() string { return g.state.ID }

// ModelEndpoint returns the address at which the server calls the agent's model.
func (g *agent) ModelEndpoint() string { return g.state.LLMConfig.ModelEndpoint }

// Tools returns the names of the tools that the model is told of: the agent's, then those
// of this side.
func (g *agent) Tools() []string {
	var names []string
	for i := range g.state.Tools {
		names = append(names, g.state.Tools[i].Name)
	}
	for i := range g.cfg.ClientTools {
		names = append(names, g.cfg.ClientTools[i].Tool.Name)
	}
	return names
}

// Run sends the messages of the task, one after the other, the next one only after the
// agent came to its own end; and answers what the server asks meanwhile.
func (g *agent) Run(ctx context.Context) (*collector.Reply, error) {
	g.reply = &collector.Reply{AgentID: g.state.ID, Model: g.state.LLMConfig.Handle, ServerVersion: g.version}
	if g.cfg.OverrideModel != "" {
		g.reply.Model = g.cfg.OverrideModel
	}
	err := g.converse(ctx)
	if err == nil && g.earlier != nil {
		err = g.settle(ctx)
	}
	if n := len(g.rollout.Sends); n > 0 {
		g.reply.Output = g.rollout.Sends[n-1].Response.Output()
	}
	if g.cfg.Messages {
		if text, e := g.rollout.Conversed(); e == nil {
			g.reply.Messages = text
		}
	}
	return g.reply, Translate(g.missing(err))
}

// An input is what is sent to the agent in one send.
type input struct {
	messages letta.InputMessages
	// ours reports whether a message holds a tool result or a refusal of this side: the
	// model sees empty text in its place.
	ours bool
}

// converse leads the conversation of the task until it is over, or until a send ends
// otherwise than by the agent's own end: the sample ends there, with that status.
func (g *agent) converse(ctx context.Context) (err error) {
	ahead := newPrefetcher(ctx, g)
	defer func() { ahead.end(err) }()
	for _, text := range g.attempt.Task.Messages {
		next := &input{messages: letta.InputMessages{letta.UserText(text)}}
		for round := 0; next != nil; round++ {
			ahead.answered()
			answer, err := g.exchange(ctx, next)
			if err != nil {
				return err
			}
			next = nil
			if answer.StopReason == letta.StopRequiresApproval && round < g.cfg.MaxRounds {
				next, err = g.react(ctx, answer.Pending())
				if err != nil {
					return err
				}
			}
		}
		last := g.reply.Sends[len(g.reply.Sends)-1]
		if !letta.StopReason(last.StopReason).Completed() {
			return g.brokenRun(ctx, g.rollout.Sends[len(g.rollout.Sends)-1].Response, last.RunID)
		}
	}
	return nil
}

// exchange sends, or takes the answer to what an earlier process has sent.
func (g *agent) exchange(ctx context.Context, in *input) (*letta.LettaResponse, error) {
	switch {
	case g.inexact:
		return nil, gone("agent %s: the text of its last tool is not known to the last character", g.state.ID)
	case g.earlier.waiting():
		return g.takeNext(ctx, in)
	}
	return g.send(ctx, in)
}

// react returns what answers the calls that wait for this side; nil: nothing does, and
// the rollout ends there.
func (g *agent) react(ctx context.Context, pending []letta.ToolCall) (*input, error) {
	if g.earlier.waiting() {
		return g.reactedBefore(ctx, pending) // so that no tool of this side runs twice
	}
	return g.answer(ctx, pending)
}

// send sends once and keeps the answer. It never sends again: where the connection is
// lost it looks for what became of the send.
func (g *agent) send(ctx context.Context, in *input) (*letta.LettaResponse, error) {
	g.earlier.sends()
	request := g.request(in.messages)
	var arena *tokenize.Reply
	g.span = g.backend.cfg.Versions.Begin(ctx)
	defer func() { g.span = nil }()
	sent := time.Now()
	answer, err := g.sendWatched(ctx, letta.SendOptions{
		AgentID: g.state.ID, ConversationID: g.conversationID(),
		Request: request, RequestID: fmt.Sprintf("%s/%d", g.attempt.Key, g.attempt.N),
		Room: g.makeRoom,
		Reply: func() *tokenize.Reply {
			arena = g.newArena()
			return arena
		},
	})
	if err != nil {
		g.mayRun = mayStillRun(err)
		if lost(err) && !g.cfg.NoRecover && ctx.Err() == nil {
			if answer, err = g.recoverSend(ctx, in, err); err == nil {
				g.span.End()
				return answer, nil
			}
		}
		return nil, g.explain(ctx, err)
	}
	g.span.End()
	runID, err := g.runOf(ctx, answer)
	g.learned(runID)
	took := time.Since(sent)
	if len(g.reply.Sends) == 0 {
		g.reply.FirstAnswer = took
	}
	g.keep(answered{request: request, ours: in.ours, answer: answer, arena: arena, runID: runID, took: took, began: sent, ended: sent.Add(took)})
	if err == nil {
		err = g.abortedCall(ctx, answer, arena, runID)
	}
	return answer, err
}

// request returns the body of a send. Both token flags are always there: one alone turns
// the token data off.
func (g *agent) request(messages letta.InputMessages) *letta.LettaRequest {
	r := &letta.LettaRequest{Messages: messages, ReturnTokenIDs: new(true), ReturnLogprobs: new(true)}
	if g.cfg.MaxSteps > 0 {
		r.MaxSteps = &g.cfg.MaxSteps
	}
	if g.cfg.OverrideModel != "" {
		r.OverrideModel = &g.cfg.OverrideModel
	}
	if g.cfg.OverrideSystem != "" {
		r.OverrideSystem = &g.cfg.OverrideSystem
	}
	for i := range g.cfg.ClientTools {
		r.ClientTools = append(r.ClientTools, g.cfg.ClientTools[i].Tool)
	}
	if g.conversation != nil {
		r.Streaming = new(false)
	}
	return r
}

// conversationID names the conversation of the sends, or is empty.
func (g *agent) conversationID() string {
	if g.conversation == nil {
		return ""
	}
	return g.conversation.ID
}

// makeRoom waits for room for a reply. Close gives back what is taken.
func (g *agent) makeRoom(ctx context.Context, length int64) error {
	taken, err := g.backend.room.take(ctx, length, g.held == 0)
	g.held += taken
	return err
}

// newArena returns memory for one reply. Close frees it.
func (g *agent) newArena() *tokenize.Reply {
	r := g.backend.arena()
	g.arenas = append(g.arenas, r)
	return r
}

// Prompts asks the Prompter of the configuration.
func (g *agent) Prompts(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
	if g.cfg.Prompter == nil {
		return nil, errors.New("agent: Config.Prompter is nil")
	}
	calls, err := g.cfg.Prompter.Prompts(ctx, r, g.rollout)
	return g.withVersions(ctx, r, calls), Translate(err)
}

// Close frees the memory of the replies and deletes the agent, unless it is to be kept.
// Where a send has no answer Close first asks the server to stop its run, which would
// continue to call the model.
func (g *agent) Close(ctx context.Context) error {
	// The memory first: at hundreds in flight many wait for the server's answer to a
	// deletion, and others read replies meanwhile.
	for _, r := range g.arenas {
		g.backend.recycle(r)
	}
	g.arenas, g.reply, g.rollout = nil, nil, nil // the latter two point into the arenas
	g.backend.room.give(g.held)
	g.held = 0
	if g.mayRun {
		g.cancel(ctx)
	}
	if g.cfg.Keep {
		return nil
	}
	return Translate(g.client.DeleteAgent(ctx, g.state.ID))
}

// cancelTimeout bounds the request to stop a run: a server that does not answer it must
// not use up the time in which the agent is to be deleted, of which it gets half at most.
const cancelTimeout = 5 * time.Second

// cancel asks the server to stop. Its answer is not needed: it is 409 where nothing runs,
// and the deletion is what counts.
func (g *agent) cancel(ctx context.Context) {
	limit := cancelTimeout
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, _ = g.client.Cancel(ctx, g.state.ID)
}
