package record

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
)

// A Source fetches records. It is a *letta.Client or a fake.
type Source interface {
	Agent(ctx context.Context, id string) (*letta.AgentState, error)
	SystemText(ctx context.Context, messageID string) (string, error)
	Conversation(ctx context.Context, id string) (*letta.Conversation, error)
	// RunSteps and RunMessages return the steps and messages, oldest first.
	RunSteps(ctx context.Context, runID string) ([]letta.Step, error)
	RunMessages(ctx context.Context, runID string) (letta.Messages, error)
	// PollStepTrace waits briefly for a late trace. It returns nil if the server has no trace of
	// the step.
	PollStepTrace(ctx context.Context, stepID string) (*letta.ProviderTrace, error)
}

// errNoSource is returned by every fetch of a Rollout without a Source.
var errNoSource = errors.New("record: the rollout has no server")

// A Rollout contains the data of one attempt and its agent. Only one goroutine of the backend sets
// the fields. The methods are safe for concurrent use.
type Rollout struct {
	// Agent is the state of the agent before the first send.
	Agent *letta.AgentState
	// Conversation is the conversation that received the messages. It is nil if the agent itself
	// received the messages.
	Conversation *letta.Conversation
	// SystemText is the system message before the first send. It is empty if it was not fetched.
	SystemText string
	// Late is true if Agent and SystemText were read after a request had been sent to the agent.
	// The request might have used an earlier state of the agent.
	Late bool
	// Recorded is true if another program drove the agent. The agent might also have been in use
	// before and after this rollout. That program's requests are known only if the server stored
	// them. Agent and SystemText have their current values. Messages from before the first send are
	// available only in the traces.
	Recorded bool
	// Before contains stored messages that are older than Sends. They show the outcomes of earlier
	// tool calls.
	Before letta.Messages
	// Sends has one entry per answered send, in order.
	Sends []Send
	// Engines records facts that traces show about the engines behind the server. All rollouts of a
	// server should share one Engines. New sets Engines to a new value.
	Engines *Engines

	source   Source
	mu       *sync.Mutex // guards the fields below
	requests *Requests
	runs     map[string]*Run
	traces   map[string]*once[*Trace]
}

// Engines records facts that a server's traces show about its engines. It is safe for concurrent
// use.
type Engines struct{ continuity atomic.Bool }

// Continuity reports whether any trace showed a tap with continuity. Once it is true, it stays
// true, because that tap might still be running.
func (e *Engines) Continuity() bool { return e.continuity.Load() }

// A Send is one request and its answer, without turns.
type Send struct {
	Request  *letta.LettaRequest
	Response *letta.LettaResponse
	RunID    string // the server run; empty if unknown
	Duration time.Duration
	// Began and Ended are the local times of the request and of its answer, or zero if unknown. If
	// the answer was not received, they are the start and the end of the server run.
	Began, Ended time.Time
}

// New returns an empty Rollout that reads from source. With a nil source, every fetch fails.
func New(source Source) *Rollout {
	return &Rollout{
		Engines: new(Engines), source: source, mu: new(sync.Mutex), requests: new(Requests),
		runs: make(map[string]*Run), traces: make(map[string]*once[*Trace]),
	}
}

// Run returns the record of a server run.
func (r *Rollout) Run(id string) *Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.runs[id]
	if run == nil {
		run = &Run{ID: id, of: r}
		r.runs[id] = run
	}
	return run
}

// Trace returns the trace of a step, or nil if there is none. Trace waits briefly for a late trace.
func (r *Rollout) Trace(ctx context.Context, stepID string) (*Trace, error) {
	return r.trace(stepID).get(ctx, func(ctx context.Context) (*Trace, error) { return r.fetchTrace(ctx, stepID) })
}

// errLate prevents TraceSoon from storing that a trace is missing.
var errLate = errors.New("record: no trace yet")

// TraceSoon is like Trace, but for a trace that might not yet exist. If the trace was missing
// before, TraceSoon repeats the request. It never stores that a trace is missing.
func (r *Rollout) TraceSoon(ctx context.Context, stepID string) (*Trace, error) {
	kept := r.trace(stepID)
	kept.drop(func(t *Trace) bool { return t == nil })
	t, err := kept.get(ctx, func(ctx context.Context) (*Trace, error) {
		t, err := r.fetchTrace(ctx, stepID)
		if t == nil && err == nil {
			err = errLate
		}
		return t, err
	})
	if errors.Is(err, errLate) {
		err = nil
	}
	return t, err
}

func (r *Rollout) trace(stepID string) *once[*Trace] {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.traces[stepID]
	if t == nil {
		t = new(once[*Trace])
		r.traces[stepID] = t
	}
	return t
}

func (r *Rollout) fetchTrace(ctx context.Context, stepID string) (*Trace, error) {
	t, err := fetch(ctx, r, &r.requests.Traces, Source.PollStepTrace, stepID)
	if t == nil || err != nil {
		return nil, err
	}
	trace := NewTrace(t)
	if trace.answer.Continuity {
		r.Engines.continuity.Store(true)
	}
	return trace, nil
}

// AgentNow refetches the agent and the text of its system message on every call.
func (r *Rollout) AgentNow(ctx context.Context) (*letta.AgentState, string, error) {
	now, err := r.AgentState(ctx)
	if err != nil || len(now.MessageIDs) == 0 {
		return now, "", err
	}
	system, err := fetch(ctx, r, &r.requests.Agents, Source.SystemText, now.MessageIDs[0])
	return now, system, err
}

// AgentState refetches the agent on every call, without its system message.
func (r *Rollout) AgentState(ctx context.Context) (*letta.AgentState, error) {
	return fetch(ctx, r, &r.requests.Agents, Source.Agent, r.Agent.ID)
}

// ConversationSystem returns the text of the conversation's system message. The first send creates
// that message. The text is empty if the conversation has no messages.
func (r *Rollout) ConversationSystem(ctx context.Context) (string, error) {
	c, err := fetch(ctx, r, &r.requests.Conversations, Source.Conversation, r.Conversation.ID)
	if err != nil || len(c.InContextMessageIDs) == 0 {
		return "", err
	}
	return fetch(ctx, r, &r.requests.Conversations, Source.SystemText, c.InContextMessageIDs[0])
}

// Conversed returns the conversation as a JSON array. The array contains the messages from the
// requests and the answers, in order. The messages from answers are copied byte for byte.
func (r *Rollout) Conversed() (json.RawMessage, error) {
	size := 2
	for i := range r.Sends {
		size += 256 * len(r.Sends[i].Request.Messages)
		for k := range r.Sends[i].Response.Messages {
			size += len(r.Sends[i].Response.Messages[k].JSON) + 1
		}
	}
	all := append(make([]byte, 0, size), '[')
	for i := range r.Sends {
		s := &r.Sends[i]
		for _, m := range s.Request.Messages {
			text, err := letta.Marshal(m)
			if err != nil {
				return nil, err
			}
			all = append(append(all, text...), ',')
		}
		for k := range s.Response.Messages {
			all = append(append(all, s.Response.Messages[k].JSON...), ',')
		}
	}
	if len(all) > 1 {
		all = all[:len(all)-1]
	}
	return append(all, ']'), nil
}

// Scrubs reports whether the server deletes the text before tool calls when it builds the prompts
// of the given request.
//
// Source: helpers/reasoning_helper.py:22-48 of letta-ai/letta.
func (r *Rollout) Scrubs(request *letta.LettaRequest) bool {
	c := &r.Agent.LLMConfig
	off := func(b *bool) bool { return b != nil && !*b }
	return off(c.PutInnerThoughtsInKwargs) && off(c.EnableReasoner) &&
		c.MaxReasoningTokens != nil && *c.MaxReasoningTokens == 0 &&
		(request.OverrideModel == nil || *request.OverrideModel == "")
}
