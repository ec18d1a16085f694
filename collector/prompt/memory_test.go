package prompt_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// A memory holds the server's records of a life, fetched once.
type memory struct {
	steps    [][]letta.Step
	messages []letta.Messages
	traces   map[string]*letta.ProviderTrace
	agent    *letta.AgentState
	system   string
	err      error // returned by every fetch, if set
}

var _ prompt.Fetcher = (*memory)(nil)

func (m *memory) Steps(_ context.Context, i int) ([]letta.Step, error) { return m.steps[i], m.err }

func (m *memory) Messages(_ context.Context, i int) (letta.Messages, error) {
	return m.messages[i], m.err
}

func (m *memory) Trace(_ context.Context, id string) (*letta.ProviderTrace, error) {
	return m.traces[id], m.err
}

func (m *memory) AgentNow(context.Context) (*letta.AgentState, string, error) {
	return m.agent, m.system, m.err
}

// with returns a copy whose lists can be replaced.
func (m *memory) with(change func(*memory)) *memory {
	c := &memory{slices.Clone(m.steps), slices.Clone(m.messages), map[string]*letta.ProviderTrace{}, m.agent, m.system, m.err}
	maps.Copy(c.traces, m.traces)
	change(c)
	return c
}

// A knownLife is a recorded life with the server's records and the true prompts.
type knownLife struct {
	name   string
	reply  *prompt.Answered
	memory *memory
	truths []truth
}

// remembered plays the named recordings once and keeps the server's records.
func remembered(tb testing.TB, names ...string) []*knownLife {
	tb.Helper()
	var all []*knownLife
	for _, rec := range recordings(tb) {
		truths := rec.truths()
		if len(truths) == 0 || rec.name == "logprobs-only" || len(names) > 0 && !slices.Contains(names, rec.name) {
			continue
		}
		k := &knownLife{name: rec.name, reply: live(tb, &rec), truths: truths, memory: &memory{traces: map[string]*letta.ProviderTrace{}}}
		e := k.reply.Evidence
		k.memory.agent, k.memory.system = e.Agent, e.SystemText
		for i := range e.Sends {
			run := e.Run(e.Sends[i].RunID)
			steps, err := run.Calls(tb.Context())
			if err != nil {
				tb.Fatal(err)
			}
			messages, err := run.Messages(tb.Context())
			if err != nil {
				tb.Fatal(err)
			}
			for _, s := range steps {
				if k.memory.traces[s.ID], err = k.reply.Client.StepTrace(tb.Context(), s.ID); err != nil {
					tb.Fatal(err)
				}
			}
			k.memory.steps, k.memory.messages = append(k.memory.steps, steps), append(k.memory.messages, messages)
		}
		all = append(all, k)
	}
	return all
}

// rebuilt returns the calls of a reply with its records in memory.
func rebuilt(tb testing.TB, r *prompt.Rebuilder, m *memory, reply *prompt.Answered) []tokenize.Call {
	tb.Helper()
	calls, err := r.Prompts(tb.Context(), m, reply)
	if err != nil {
		tb.Fatal(err)
	}
	return calls
}
