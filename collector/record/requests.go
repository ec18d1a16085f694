package record

import (
	"context"
	"maps"
)

// Requests counts requests by the kind of data that they fetch. A call of PollStepTrace counts as
// one request, even if it makes several.
type Requests struct {
	// Steps and Messages count the requests for the steps and messages of server runs. Traces
	// counts the requests for the traces of steps.
	Steps, Messages, Traces int64
	// Agents counts the requests for the current state of an agent. The agent and its system
	// message are separate requests.
	Agents int64
	// Conversations counts the requests for the system messages of conversations. Each message
	// needs two requests.
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

// Plus adds the counts of r and more.
func (r Requests) Plus(more Requests) Requests {
	return Requests{
		Steps: r.Steps + more.Steps, Messages: r.Messages + more.Messages, Traces: r.Traces + more.Traces,
		Agents: r.Agents + more.Agents, Conversations: r.Conversations + more.Conversations,
	}
}

// Requests counts the requests so far.
func (r *Rollout) Requests() Requests {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.requests
}

// fetch makes a request to the server and increments *n, which is a field of r.requests.
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
