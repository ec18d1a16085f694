package record

import (
	"context"
	"maps"
)

// Requests counts requests by the kind of data that they fetch. All requests of one PollStepTrace
// count as one.
type Requests struct {
	// Steps and Messages count requests about server runs. Traces counts requests about steps.
	Steps, Messages, Traces int64
	// Agents counts the requests for the current state of an agent: one for the agent, and one for
	// its system message.
	Agents int64
	// Conversations counts the requests for the system messages of conversations, two for each
	// message.
	Conversations int64
}

// Total returns the sum of all counts.
func (r Requests) Total() int64 {
	return r.Steps + r.Messages + r.Traces + r.Agents + r.Conversations
}

// BySource returns the nonzero counts, keyed by the lower-case names of the fields.
func (r Requests) BySource() map[string]int64 {
	all := map[string]int64{
		"steps": r.Steps, "messages": r.Messages, "traces": r.Traces, "agents": r.Agents, "conversations": r.Conversations,
	}
	maps.DeleteFunc(all, func(_ string, n int64) bool { return n == 0 })
	return all
}

// Plus returns the sum of r and more, field by field.
func (r Requests) Plus(more Requests) Requests {
	return Requests{
		Steps: r.Steps + more.Steps, Messages: r.Messages + more.Messages, Traces: r.Traces + more.Traces,
		Agents: r.Agents + more.Agents, Conversations: r.Conversations + more.Conversations,
	}
}

// Requests returns the number of requests so far.
func (r *Rollout) Requests() Requests {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.requests
}

// fetch makes a request to the server and counts it in *n, a field of r.requests.
func fetch[T any](ctx context.Context, r *Rollout, n *int64, ask func(Source, context.Context, string) (T, error), id string) (T, error) {
	if r.source == nil {
		var zero T
		return zero, errNoSource
	}
	r.mu.Lock()
	*n++
	r.mu.Unlock()
	return ask(r.source, ctx, id)
}
