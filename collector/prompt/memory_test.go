package prompt_test

import (
	"context"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
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

// A knownLife is a recorded life with the server's records and the true prompts. It is a
// record.Source of these records.
type knownLife struct {
	name   string
	reply  *prompt.Answered
	memory *memory
	truths []truth
}

// fresh returns a copy of the rollout with nothing fetched, which reads its records from a source.
func fresh(from record.Source, r *record.Rollout) *record.Rollout {
	out := record.New(from)
	out.Agent, out.Conversation, out.SystemText, out.Late, out.Recorded, out.Sends = r.Agent, r.Conversation, r.SystemText, r.Late, r.Recorded, r.Sends
	return out
}

// send returns the number of the send with this server run.
func (known *knownLife) send(runID string) int {
	return slices.IndexFunc(known.reply.Evidence.Sends, func(x record.Send) bool { return x.RunID == runID })
}

func (known *knownLife) RunSteps(_ context.Context, id string) ([]letta.Step, error) {
	return known.memory.steps[known.send(id)], known.memory.err
}

func (known *knownLife) RunMessages(_ context.Context, id string) (letta.Messages, error) {
	return known.memory.messages[known.send(id)], known.memory.err
}

func (known *knownLife) PollStepTrace(_ context.Context, id string) (*letta.ProviderTrace, error) {
	return known.memory.traces[id], known.memory.err
}

func (known *knownLife) Agent(context.Context, string) (*letta.AgentState, error) {
	now := *known.memory.agent
	now.MessageIDs = []string{"message-0"}
	return &now, known.memory.err
}

func (known *knownLife) SystemText(context.Context, string) (string, error) {
	return known.memory.system, known.memory.err
}

// Conversation returns a conversation with the agent's system message.
func (known *knownLife) Conversation(context.Context, string) (*letta.Conversation, error) {
	return &letta.Conversation{InContextMessageIDs: []string{"message-0"}}, nil
}

// remembered plays the named recordings once and keeps the server's records.
func remembered(tb testing.TB, names ...string) []*knownLife {
	tb.Helper()
	var all []*knownLife
	for _, rec := range provable(tb) {
		if !slices.Contains(names, rec.name) {
			continue
		}
		k := &knownLife{name: rec.name, reply: live(tb, &rec), truths: rec.truths(), memory: &memory{traces: map[string]*letta.ProviderTrace{}}}
		e := k.reply.Evidence
		k.memory.agent, k.memory.system = e.Agent, e.SystemText
		for i := range e.Sends {
			run := e.Run(e.Sends[i].RunID)
			steps := must(run.Calls(tb.Context()))(tb)
			messages := must(run.Messages(tb.Context()))(tb)
			for _, s := range steps {
				k.memory.traces[s.ID] = must(k.reply.Client.StepTrace(tb.Context(), s.ID))(tb)
			}
			k.memory.steps, k.memory.messages = append(k.memory.steps, steps), append(k.memory.messages, messages)
		}
		all = append(all, k)
	}
	return all
}

// rollout returns the rollout of the life, with nothing fetched.
func (known *knownLife) rollout() *record.Rollout { return fresh(known, known.reply.Evidence) }

// rebuilt returns the calls of the life.
func (known *knownLife) rebuilt(tb testing.TB, r *prompt.Rebuilder) []tokenize.Call {
	tb.Helper()
	return must(r.Prompts(tb.Context(), &known.reply.Reply, known.rollout()))(tb)
}
