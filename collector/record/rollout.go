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

// A Source is where records are read: a *letta.Client, or a fake.
type Source interface {
	Agent(ctx context.Context, id string) (*letta.AgentState, error)
	SystemText(ctx context.Context, messageID string) (string, error)
	Conversation(ctx context.Context, id string) (*letta.Conversation, error)
	// RunSteps and RunMessages list oldest first.
	RunSteps(ctx context.Context, runID string) ([]letta.Step, error)
	RunMessages(ctx context.Context, runID string) (letta.Messages, error)
	// PollStepTrace waits a little for a trace that is late; nil: there is none.
	PollStepTrace(ctx context.Context, stepID string) (*letta.ProviderTrace, error)
}

// errNoSource is why a Rollout that was made without a Source fetches nothing.
var errNoSource = errors.New("record: there is no server to read from")

// A Rollout is what is known of one attempt and its agent. Its fields are filled in by
// the backend, in one goroutine; its methods may be called from many.
type Rollout struct {
	// Agent is the agent before the first send.
	Agent *letta.AgentState
	// Conversation is where the messages were sent; nil: to the agent itself.
	Conversation *letta.Conversation
	// SystemText is the text of the system message before the first send; empty where it
	// was not asked for.
	SystemText string
	// Late says that Agent and SystemText were read after a request was sent to the
	// agent: they need not be what that request was given.
	Late bool
	// Recorded says that another program drove the agent, before and after too. Its requests
	// are known as far as they are stored, Agent and SystemText are those of today, and what
	// was said before the first of Sends is in the traces alone.
	Recorded bool
	// Before are stored messages from before the first of Sends: those that say what became
	// of the calls of tools that its traces show.
	Before letta.Messages
	// Sends has one entry per answered send, in order.
	Sends []Send
	// Engines records what traces show of the engines behind the server. All rollouts of a
	// server share it. New sets a separate one.
	Engines *Engines

	source   Source
	requests *counters
	mu       *sync.Mutex // of the maps
	runs     map[string]*Run
	traces   map[string]*once[*Trace]
}

// Engines records what the traces of one server showed of the engines behind it, whatever the
// purpose of reading them. It is safe for concurrent use.
type Engines struct{ continuity atomic.Bool }

// Continuity reports whether a trace showed a tap with continuity. Once true, it stays true:
// that tap can still be running.
func (e *Engines) Continuity() bool { return e.continuity.Load() }

// A Send is one request and its answer, without turns.
type Send struct {
	Request  *letta.LettaRequest
	Response *letta.LettaResponse
	RunID    string // the server run; empty where it is not known
	Duration time.Duration
	// Began and Ended are when the request was sent and when its answer was there, by this
	// machine's clock; zero where that is not known. An answer that was not received has the
	// times of its server run.
	Began, Ended time.Time
}

// New returns an empty Rollout that is read from source. Where that is nil, nothing can
// be fetched.
func New(source Source) *Rollout {
	return &Rollout{
		Engines: new(Engines), source: source, requests: new(counters), mu: new(sync.Mutex),
		runs: make(map[string]*Run), traces: make(map[string]*once[*Trace]),
	}
}

// Run is the record of a server run.
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

// Trace returns the trace of a step, waiting a little for one that is late; nil where
// there is none.
func (r *Rollout) Trace(ctx context.Context, stepID string) (*Trace, error) {
	return r.trace(stepID).get(ctx, func(ctx context.Context) (*Trace, error) { return r.fetchTrace(ctx, stepID) })
}

// errLate is why TraceSoon keeps nothing of a trace that is not there yet.
var errLate = errors.New("record: no trace yet")

// TraceSoon is Trace for a caller who knows that the trace may be late for long: it asks the
// server also where there was none before, and that there is none is not kept.
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
	t, err := fetch(ctx, r, &r.requests.traces, Source.PollStepTrace, stepID)
	if t == nil || err != nil {
		return nil, err
	}
	trace := NewTrace(t)
	if trace.answer.Continuity {
		r.Engines.continuity.Store(true)
	}
	return trace, nil
}

// AgentNow reads the agent and the text of its system message again. It fetches both
// whenever it is called.
func (r *Rollout) AgentNow(ctx context.Context) (*letta.AgentState, string, error) {
	now, err := r.AgentState(ctx)
	if err != nil || len(now.MessageIDs) == 0 {
		return now, "", err
	}
	system, err := fetch(ctx, r, &r.requests.agents, Source.SystemText, now.MessageIDs[0])
	return now, system, err
}

// AgentState reads the agent again, without its system message. It fetches it whenever it is
// called.
func (r *Rollout) AgentState(ctx context.Context) (*letta.AgentState, error) {
	return fetch(ctx, r, &r.requests.agents, Source.Agent, r.Agent.ID)
}

// ConversationSystem returns the text of the system message of the conversation, which
// its first send made. It is empty where the conversation has none.
func (r *Rollout) ConversationSystem(ctx context.Context) (string, error) {
	c, err := fetch(ctx, r, &r.requests.conversations, Source.Conversation, r.Conversation.ID)
	if err != nil || len(c.InContextMessageIDs) == 0 {
		return "", err
	}
	return fetch(ctx, r, &r.requests.conversations, Source.SystemText, c.InContextMessageIDs[0])
}

// Conversed is the conversation as a JSON array: what was sent, as the request had it,
// and the messages of the answers, in order, byte for byte.
func (r *Rollout) Conversed() (json.RawMessage, error) {
	size := 2
	for i := range r.Sends {
		size += len(r.Sends[i].Response.JSON) + 256
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

// Scrubs reports whether the server deletes the text before tool calls when it makes the
// prompts of a request.
//
// Source: helpers/reasoning_helper.py:22-48 of letta-ai/letta.
func (r *Rollout) Scrubs(request *letta.LettaRequest) bool {
	c := &r.Agent.LLMConfig
	off := func(b *bool) bool { return b != nil && !*b }
	return off(c.PutInnerThoughtsInKwargs) && off(c.EnableReasoner) &&
		c.MaxReasoningTokens != nil && *c.MaxReasoningTokens == 0 &&
		(request.OverrideModel == nil || *request.OverrideModel == "")
}
