package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// An agent is one attempt's agent on the server. It implements collector.Agent.
type agent struct {
	backend *Backend
	client  *letta.Client
	cfg     Config
	attempt collector.Attempt

	state        *letta.AgentState
	conversation *letta.Conversation
	version      string

	arenas  []*tokenize.Reply
	held    int64 // of the backend's room for replies
	rollout *record.Rollout
	// unanswered says that a send ended without an answer of the server, which may
	// still be running it.
	unanswered bool

	// known are the server runs of the attempt that were told to Attempt.ServerRun.
	known   map[string]bool
	taken   bool // an earlier process made the agent
	resumed bool // and this process sent to it
	left    collector.OpenAttempt
	queue   []letta.Run // server runs that were found and are not in the reply yet
	head    *memory     // of the first in queue; nil until it was waited for
	// guessed says that nothing may come after the last send: see recollection.
	guessed bool
	// outage says that the server could not be reached while a run was looked up.
	outage bool
}

// A Prompter finds the prompt of every call of a reply, as collector.Agent says. It is
// used from many goroutines at once.
type Prompter interface {
	// Prompts may read whatever rollout can fetch: the agent is still there.
	Prompts(ctx context.Context, r *collector.Reply, rollout *record.Rollout) ([]tokenize.Call, error)
}

// Prompts asks the Prompter of the configuration.
func (g *agent) Prompts(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
	if g.cfg.Prompter == nil {
		return nil, errors.New("agent: Config.Prompter is nil")
	}
	calls, err := g.cfg.Prompter.Prompts(ctx, r, g.rollout)
	return calls, Translate(err)
}

// prepare does what must be done between making the agent and the first send.
func (g *agent) prepare(ctx context.Context) error {
	if err := g.state.CheckTurns(); err != nil {
		return err
	}
	if g.cfg.KeepReasoning {
		// Create forces enable_reasoner off for a model that the server does not list
		// as a reasoner; a change afterwards sticks (agent_manager.py:344-360, 778-784).
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
		if err := g.state.CheckTurns(); err != nil {
			return err
		}
	}
	if g.cfg.Conversation && g.conversation == nil {
		conversation, err := g.client.CreateConversation(ctx, g.state.ID)
		if err != nil {
			return err
		}
		g.conversation = conversation
	}
	return g.gather(ctx)
}

// gather reads what must be known before the first send.
func (g *agent) gather(ctx context.Context) error {
	g.rollout = record.New(g.client)
	g.rollout.Agent, g.rollout.Conversation, g.rollout.Late = g.state, g.conversation, len(g.queue) > 0
	if g.cfg.SystemText && len(g.state.MessageIDs) > 0 {
		text, err := g.client.SystemText(ctx, g.state.MessageIDs[0])
		if err != nil {
			return err
		}
		g.rollout.SystemText = text
	}
	return nil
}

// ID is the server's name of the agent.
func (g *agent) ID() string { return g.state.ID }

// Tools are the names of the tools that the model is told of: the agent's, then those of
// this side.
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

// Run sends the messages of the task, one after the other, the next one only
// after the agent came to its own end; and answers what the server asks meanwhile.
func (g *agent) Run(ctx context.Context) (*collector.Reply, error) {
	reply := &collector.Reply{
		AgentID: g.state.ID, Model: g.state.LLMConfig.Handle, ServerVersion: g.version,
		Sampling: sampling(g.version, &g.state.LLMConfig, g.cfg.OverrideModel),
	}
	if g.cfg.OverrideModel != "" {
		reply.Model = g.cfg.OverrideModel
	}
	err := g.converse(ctx, reply)
	if err == nil && g.taken {
		err = g.settle(ctx, reply)
	}
	err = g.missing(err)
	if len(g.rollout.Sends) > 0 {
		reply.Output = g.rollout.Sends[len(g.rollout.Sends)-1].Response.Output()
	}
	if g.cfg.Messages {
		if text, e := g.rollout.Conversed(); e == nil {
			reply.Messages = text
		}
	}
	return reply, Translate(err)
}

func (g *agent) converse(ctx context.Context, reply *collector.Reply) error {
	for _, text := range g.attempt.Task.Messages {
		next, made := letta.InputMessages{letta.UserText(text)}, false
		for round := 0; ; round++ {
			exchange := g.send
			if len(g.queue) > 0 {
				exchange = g.recall
			}
			answer, err := exchange(ctx, next, made, reply)
			if err != nil {
				return err
			}
			if answer.StopReason != letta.StopRequiresApproval || round >= g.cfg.MaxRounds {
				break
			}
			input, client, err := g.reaction(ctx, answer.Pending())
			if err != nil {
				return err
			}
			if input == nil {
				break
			}
			next, made = letta.InputMessages{input}, client
		}
		last := reply.Sends[len(reply.Sends)-1]
		if !letta.StopReason(last.StopReason).Completed() {
			return nil // the sample ends here, with that status
		}
	}
	return nil
}

// send sends once and keeps the answer. made says that a message holds a tool result
// of this side.
func (g *agent) send(ctx context.Context, messages letta.InputMessages, made bool, reply *collector.Reply) (*letta.LettaResponse, error) {
	if g.guessed {
		return nil, g.guessedText()
	}
	g.resumed = g.taken
	request := g.request(messages)
	var arena *tokenize.Reply
	take := func() *tokenize.Reply {
		arena = g.arena()
		return arena
	}
	id := fmt.Sprintf("%s/%d", g.attempt.Key, g.attempt.N)

	sent := time.Now()
	o := letta.SendOptions{AgentID: g.state.ID, Request: request, RequestID: id, Room: g.room, Reply: take}
	if g.conversation != nil {
		o.ConversationID = g.conversation.ID
	}
	answer, err := g.post(ctx, o)
	if err != nil {
		g.unanswered = mayRun(err)
		if lost(err) && !g.cfg.NoRecover && ctx.Err() == nil {
			answer, err = g.recover(ctx, err, messages, made, reply)
			if err == nil {
				return answer, nil
			}
		}
		return nil, g.explain(ctx, err)
	}

	runID := answer.RunID()
	if runID == "" {
		// An answer without messages names no run, as after an empty generation.
		// Where the look-up fails, the tokens of the answer are kept all the same.
		var run *letta.Run
		run, err = g.client.LastRun(ctx, g.state.ID)
		if run != nil && !g.knows(run.ID) {
			runID = run.ID
		}
	}
	g.learned(runID)
	took := time.Since(sent)
	if len(reply.Sends) == 0 {
		reply.FirstAnswer = took
	}
	g.keep(reply, request, answer, arena, runID, took, made)
	if err == nil {
		err = g.aborted(ctx, answer, arena, runID)
	}
	return answer, err
}

// keep adds an answered send to the reply and to the record.
func (g *agent) keep(reply *collector.Reply, request *letta.LettaRequest, answer *letta.LettaResponse, arena *tokenize.Reply, runID string, took time.Duration, made bool) {
	send := collector.Send{
		RunID: runID, StopReason: string(answer.StopReason),
		Usage: collector.Usage{
			PromptTokens: answer.Usage.PromptTokens, CompletionTokens: answer.Usage.CompletionTokens, Steps: answer.Usage.StepCount,
		},
		ClientTools: made, Duration: took,
	}
	if arena.HasTurns {
		send.Turns = arena.Turns
		if send.Turns == nil {
			send.Turns = []tokenize.Turn{}
		}
	}
	reply.Sends = append(reply.Sends, send)
	g.rollout.Sends = append(g.rollout.Sends, record.Send{Request: request, Response: answer, RunID: runID, Duration: took})
}

// mayRun says that the server may still be running a send that ended with err: no
// answer came, or only that of a proxy which did not wait for one.
func mayRun(err error) bool {
	e := (*letta.APIError)(nil)
	if !errors.As(err, &e) {
		return true
	}
	switch e.Status {
	case 0, http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// request is the body of a send. Both token flags are always there: one alone
// turns the data off.
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

func (g *agent) knows(runID string) bool {
	for _, s := range g.rollout.Sends {
		if s.RunID == runID {
			return true
		}
	}
	return false
}

// room waits for room for a reply. What is taken is given back by Close.
func (g *agent) room(ctx context.Context, length int64) error {
	taken, err := g.backend.room.take(ctx, length, g.held == 0)
	g.held += taken
	return err
}

// Close deletes the agent, unless it is to be kept, and frees the arenas. Where a
// send has no answer the server is first asked to stop its run, which would go on
// calling the model.
func (g *agent) Close(ctx context.Context) error {
	// The arenas first: at hundreds in flight many wait for the server's answer to
	// a deletion, and others read replies meanwhile.
	for _, r := range g.arenas {
		g.backend.recycle(r)
	}
	g.arenas = nil
	g.backend.room.give(g.held)
	g.held = 0
	if g.unanswered {
		g.cancel(ctx)
	}
	if g.cfg.Keep {
		return nil
	}
	return Translate(g.client.DeleteAgent(ctx, g.state.ID))
}

// cancelTimeout bounds the request to stop a run: a server that does not answer it
// must not use up the time in which the agent is to be deleted, of which it gets half
// at most.
const cancelTimeout = 5 * time.Second

// cancel asks the server to stop. Its answer says nothing that is needed: 409 where
// nothing runs, and the deletion is what counts.
func (g *agent) cancel(ctx context.Context) {
	limit := cancelTimeout
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, _ = g.client.Cancel(ctx, g.state.ID)
}

// sampling is what the engine really used, where the server's version lets us
// know: 0.16 always sends top_p 0.9 and max_new_tokens 4096 on the native path,
// whatever its settings say (sglang_native_adapter.py:303-304).
func sampling(version string, c *letta.LLMConfig, overrideModel string) tokenize.Sampling {
	if !strings.HasPrefix(version, "0.16.") {
		return tokenize.Sampling{}
	}
	s := tokenize.Sampling{TopP: new(float32(0.9)), MaxNewTokens: new(int32(4096))}
	switch {
	case overrideModel != "":
		s.Temperature = new(float32(1)) // the handle's own configuration, agents.py:1734-1741
	case c.Temperature != nil:
		s.Temperature = new(float32(*c.Temperature))
	}
	return s
}
