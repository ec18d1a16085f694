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

// This file implements the normal course of an attempt, from top to bottom:
//
//	open     create the agent, check that it returns token data, fetch its system text
//	Run      for each message of the task: send it, and answer the server's requests
//	Prompts  find the prompt of every call
//	Close    free the memory of the replies, delete the agent
//
// Three functions handle the other cases. If an earlier process already made the send, takeNext is
// called (takeover.go). If the connection was lost, recoverSend is called (recover.go). If the
// server reports that a send failed, explain is called (explain.go).

// An agent drives the server's agent for one attempt. It implements collector.Agent.
type agent struct {
	// backend created this agent. The agents of a backend share its limit on held replies and its
	// pool of arenas.
	backend *Backend
	client  *letta.Client
	// cfg is the configuration with the task's overrides applied.
	cfg     Config
	attempt collector.Attempt
	// version is the version that the server reports.
	version string

	// state is the agent's state before the first send.
	state *letta.AgentState
	// conversation receives the messages. If conversation is nil, the agent itself receives the
	// messages.
	conversation *letta.Conversation
	// rollout contains the records from which the Prompter determines the prompts.
	rollout *record.Rollout
	reply   *collector.Reply

	// arenas hold the turns of the replies until Close.
	arenas []*tokenize.Reply
	// held is the number of bytes that were acquired from backend.room.
	held int64

	// spans contains the policy.Span of each send in reply.Sends, or nil if another process made
	// the send. span is the policy.Span of the send in progress.
	spans []*policy.Span
	span  *policy.Span

	// told contains the ids of the server runs that have been reported to Attempt.ServerRun.
	told map[string]bool
	// maybeRunning is true if the server might still be working on an unanswered send. Close then
	// cancels the server run.
	maybeRunning bool
	// inexact is true if the exact text of the last tool result is unknown. In that case, nothing
	// more can be sent to the agent.
	inexact bool
	// outage is true if the server could not be reached during a lookup.
	outage atomic.Bool
	// earlier describes what an earlier process did with the agent. It is nil if this process
	// created the agent.
	earlier *earlier
}

// A Prompter finds the prompts of the calls in a reply. It must be safe for concurrent use.
type Prompter interface {
	// Prompts returns the calls in the reply with their prompts. The agent still exists, so all of
	// its records can be fetched through the record.Rollout.
	Prompts(ctx context.Context, r *collector.Reply, rollout *record.Rollout) ([]tokenize.Call, error)
	// Prefetch is called for an answered send while the server works on the next send. It fetches
	// the records that Prompts will read for the answered send. It returns soon after ctx is done.
	Prefetch(ctx context.Context, rollout *record.Rollout, of record.Send, turns []tokenize.Turn)
}

// open creates and prepares the agent of an attempt. If the preparation fails, it deletes the
// agent.
func (b *Backend) open(ctx context.Context, a collector.Attempt) (*agent, error) {
	cfg, err := b.cfg.overridden(a.Task.Agent)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", collector.ErrRejected, err)
	}
	version, err := b.client.Version(ctx) // fetched once for all agents
	if err != nil {
		return nil, err
	}
	state, err := b.create(ctx, &cfg, a)
	if err != nil {
		return nil, err
	}
	g := &agent{backend: b, client: b.client, cfg: cfg, attempt: a, version: version, state: state}
	if err := g.prepare(ctx); err != nil {
		return nil, b.deleteUnusable(ctx, state.ID, err)
	}
	return g, nil
}

func (g *agent) prepare(ctx context.Context) error {
	if err := g.state.CheckTurns(); err != nil {
		return err
	}
	if g.cfg.KeepReasoning {
		if err := g.keepReasoning(ctx); err != nil {
			return err
		}
	}
	// The two requests are independent, so make them concurrently.
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

// keepReasoning makes the server keep the text before tool calls in later prompts. A create request
// turns enable_reasoner off if the server does not list the model as a reasoner. A PATCH stores the
// value unchanged (agent_manager.py:344-360, 778-784).
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
		return fmt.Errorf("%w: keep_reasoning: the server ignored llm_config.enable_reasoner", collector.ErrUnusable)
	}
	g.state.LLMConfig = changed.LLMConfig
	return g.state.CheckTurns()
}

// systemText fetches the text of the agent's system message if Config.SystemText is set.
func (g *agent) systemText(ctx context.Context) (string, error) {
	if !g.cfg.SystemText || len(g.state.MessageIDs) == 0 {
		return "", nil
	}
	return g.client.SystemText(ctx, g.state.MessageIDs[0])
}

func (g *agent) begin(system string) {
	g.rollout = record.New(g.client)
	g.rollout.Engines = &g.backend.engines
	g.rollout.Agent, g.rollout.Conversation, g.rollout.SystemText = g.state, g.conversation, system
	g.rollout.Late = g.earlier.waiting()
}

func (g *agent) ID() string { return g.state.ID }

func (g *agent) ModelEndpoint() string { return g.state.LLMConfig.ModelEndpoint }

// Tools returns the names of the tools that the model sees: server tools, then client tools.
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

// Run sends the messages of the task in order and answers the server's requests for tool results
// and approvals. It sends the next message only if the previous send ended normally.
func (g *agent) Run(ctx context.Context) (*collector.Reply, error) {
	g.reply = &collector.Reply{AgentID: g.state.ID, Model: g.state.LLMConfig.Handle, ServerVersion: g.version}
	if g.cfg.OverrideModel != "" {
		g.reply.Model = g.cfg.OverrideModel
	}
	err := g.converse(ctx)
	if err == nil && g.earlier != nil {
		err = g.checkNoMoreRuns(ctx)
	}
	g.setTexts()
	return g.reply, Translate(g.missingError(err))
}

// setTexts sets the reply's Output to the text of the last answer, and its Messages.
func (g *agent) setTexts() {
	if n := len(g.rollout.Sends); n > 0 {
		g.reply.Output = g.rollout.Sends[n-1].Response.Output()
	}
	g.reply.Messages, _ = g.rollout.Conversed() // on an error, Messages stays nil
}

type input struct {
	messages letta.InputMessages
	// ours is true if a message contains the result of a client tool or a denial, which the model
	// sees as empty text.
	ours bool
}

// converse sends the messages of the task one after another. If a send does not end normally,
// converse sends no more messages, and the sample has the status of that send.
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

// exchange sends the input and returns the answer. If an earlier process already sent the input,
// exchange takes the answer from the server run of that process.
func (g *agent) exchange(ctx context.Context, in *input) (*letta.LettaResponse, error) {
	switch {
	case g.inexact:
		return nil, goneErrorf("agent %s: the exact text of its last tool result is unknown", g.state.ID)
	case g.earlier.waiting():
		return g.takeNext(ctx, in)
	}
	return g.send(ctx, in)
}

// react returns the input that answers the pending calls. If it returns nil, the calls stay
// unanswered and the rollout ends.
func (g *agent) react(ctx context.Context, pending []letta.ToolCall) (*input, error) {
	if g.earlier.waiting() {
		return g.reactedBefore(ctx, pending) // because a client tool must not run twice
	}
	return g.answer(ctx, pending)
}

// send sends the input once and records the answer. If the connection is lost, it recovers the
// answer.
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
		g.maybeRunning = mayStillRun(err)
		if connectionLost(err) && !g.cfg.NoRecover && ctx.Err() == nil {
			if answer, err = g.recoverSend(ctx, in, err); err == nil {
				g.span.End()
				return answer, nil
			}
		}
		return nil, g.explain(ctx, err)
	}
	g.span.End()
	runID, err := g.runOf(ctx, answer)
	g.reportRun(runID)
	took := time.Since(sent)
	if len(g.reply.Sends) == 0 {
		g.reply.FirstAnswer = took
	}
	g.recordSend(sendResult{request: request, ours: in.ours, answer: answer, arena: arena, runID: runID, took: took, began: sent, ended: sent.Add(took)})
	if err == nil {
		err = g.abortedCall(ctx, answer, arena, runID)
	}
	return answer, err
}

// request returns the body of a send. It sets both token flags, because one flag alone would turn
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

func (g *agent) conversationID() string {
	if g.conversation == nil {
		return ""
	}
	return g.conversation.ID
}

// makeRoom waits until the limit on held replies allows another reply. Close releases the reserved
// bytes.
func (g *agent) makeRoom(ctx context.Context, length int64) error {
	taken, err := g.backend.room.acquire(ctx, length, g.held == 0)
	g.held += taken
	return err
}

func (g *agent) newArena() *tokenize.Reply {
	r := g.backend.arena()
	g.arenas = append(g.arenas, r)
	return r
}

func (g *agent) Prompts(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
	if g.cfg.Prompter == nil {
		return nil, errors.New("agent: Config.Prompter is nil")
	}
	calls, err := g.cfg.Prompter.Prompts(ctx, r, g.rollout)
	return g.withVersions(ctx, r, calls), Translate(err)
}

// Close frees the memory of the replies and deletes the agent unless Config.Keep is set. If the
// server might still be working on a send, Close also cancels the server run, which would otherwise
// continue to call the model.
func (g *agent) Close(ctx context.Context) error {
	// Free the memory first. With hundreds of samples in flight, many attempts wait for the server
	// in Close.
	for _, r := range g.arenas {
		g.backend.recycle(r)
	}
	g.arenas, g.reply, g.rollout = nil, nil, nil // reply and rollout point into the arenas
	g.backend.room.release(g.held)
	g.held = 0
	if g.maybeRunning {
		g.cancel(ctx)
	}
	if g.cfg.Keep {
		return nil
	}
	return Translate(g.client.DeleteAgent(ctx, g.state.ID))
}

// cancelTimeout limits the time for the cancel request. The request also never takes more than half
// of the time that remains for Close.
const cancelTimeout = 5 * time.Second

// cancel asks the server to stop the agent's work. It ignores the answer, which is 409 if nothing
// is running.
func (g *agent) cancel(ctx context.Context) {
	limit := cancelTimeout
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, _ = g.client.Cancel(ctx, g.state.ID)
}
