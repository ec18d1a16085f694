package record

import (
	"context"
	"maps"
	"sync/atomic"
)

// Requests says how many requests were made, by what they asked for. A trace that was
// late and asked for again counts once.
type Requests struct {
	// Steps and Messages are those of server runs, Traces those of steps.
	Steps, Messages, Traces int64
	// Agents are the requests that read an agent again: one each time, and one more for
	// its system message.
	Agents int64
	// Conversations are those for the system message of a conversation: two each.
	Conversations int64
}

// Total is the sum.
func (r Requests) Total() int64 {
	return r.Steps + r.Messages + r.Traces + r.Agents + r.Conversations
}

// BySource returns the counts that are not 0, by the names of their fields in lower case.
func (r Requests) BySource() map[string]int64 {
	all := map[string]int64{
		"steps": r.Steps, "messages": r.Messages, "traces": r.Traces, "agents": r.Agents, "conversations": r.Conversations,
	}
	maps.DeleteFunc(all, func(_ string, n int64) bool { return n == 0 })
	return all
}

// Plus is the sum of both, by source.
func (r Requests) Plus(more Requests) Requests {
	return Requests{
		Steps: r.Steps + more.Steps, Messages: r.Messages + more.Messages, Traces: r.Traces + more.Traces,
		Agents: r.Agents + more.Agents, Conversations: r.Conversations + more.Conversations,
	}
}

type counters struct{ steps, messages, traces, agents, conversations atomic.Int64 }

// Requests returns what was asked for until now.
func (r *Rollout) Requests() Requests {
	c := r.requests
	return Requests{
		Steps: c.steps.Load(), Messages: c.messages.Load(), Traces: c.traces.Load(),
		Agents: c.agents.Load(), Conversations: c.conversations.Load(),
	}
}

// fetch makes one request and counts it.
func fetch[T any](ctx context.Context, r *Rollout, n *atomic.Int64, ask func(Source, context.Context, string) (T, error), id string) (T, error) {
	if r.source == nil {
		var zero T
		return zero, errNoSource
	}
	n.Add(1)
	return ask(r.source, ctx, id)
}
