package prompt

import (
	"context"
	"slices"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Fetcher reads the server's records of a send.
type Fetcher interface {
	// Steps returns the steps of send i with completion tokens, oldest first.
	Steps(ctx context.Context, i int) ([]letta.Step, error)
	Messages(ctx context.Context, i int) (letta.Messages, error)
	Trace(ctx context.Context, stepID string) (*letta.ProviderTrace, error)
	AgentNow(ctx context.Context) (*letta.AgentState, string, error)
}

// Read returns a copy of rollout r whose records are fetched through from.
func Read(from Fetcher, r *record.Rollout) *record.Rollout {
	fresh := record.New(source{from, r})
	fresh.Agent, fresh.Conversation, fresh.SystemText, fresh.Late, fresh.Recorded, fresh.Sends = r.Agent, r.Conversation, r.SystemText, r.Late, r.Recorded, r.Sends
	return fresh
}

// A source makes a record.Source of a Fetcher.
type source struct {
	from Fetcher
	of   *record.Rollout
}

func (s source) send(runID string) int {
	return slices.IndexFunc(s.of.Sends, func(x record.Send) bool { return x.RunID == runID })
}

func (s source) RunSteps(ctx context.Context, id string) ([]letta.Step, error) {
	return s.from.Steps(ctx, s.send(id))
}

func (s source) RunMessages(ctx context.Context, id string) (letta.Messages, error) {
	return s.from.Messages(ctx, s.send(id))
}

func (s source) PollStepTrace(ctx context.Context, id string) (*letta.ProviderTrace, error) {
	return s.from.Trace(ctx, id)
}

func (s source) Agent(ctx context.Context, _ string) (*letta.AgentState, error) {
	agent, _, err := s.from.AgentNow(ctx)
	if err != nil {
		return nil, err
	}
	now := *agent
	now.MessageIDs = []string{"message-0"}
	return &now, nil
}

func (s source) SystemText(ctx context.Context, _ string) (string, error) {
	_, text, err := s.from.AgentNow(ctx)
	return text, err
}

// Conversation returns a conversation with the agent's system message.
func (s source) Conversation(context.Context, string) (*letta.Conversation, error) {
	return &letta.Conversation{InContextMessageIDs: []string{"message-0"}}, nil
}

// A Rebuilder rebuilds prompts from records that do not come over HTTP.
type Rebuilder struct{ p *Prompter }

// NewRebuilder returns a Rebuilder for the given sources.
func NewRebuilder(m *Model, stored, trace bool) *Rebuilder {
	return &Rebuilder{&Prompter{model: m, stored: stored, trace: trace}}
}

// Answers uses the answers first, as a Prompter does.
func (r *Rebuilder) Answers() *Rebuilder {
	r.p.answers = true
	return r
}

// WithoutAnswers makes a Prompter fetch everything that a proof needs.
func (p *Prompter) WithoutAnswers() *Prompter {
	p.answers = false
	return p
}

// Unverified returns unproven prompts as well.
func (r *Rebuilder) Unverified() *Rebuilder {
	r.p.unverified = true
	return r
}

// An Answered is a reply with its records.
type Answered struct {
	collector.Reply
	Evidence *record.Rollout
	Client   *letta.Client // where the records are read
}

// Prompts is Prompter.Prompts with the records fetched through from.
func (r *Rebuilder) Prompts(ctx context.Context, from Fetcher, reply *Answered) ([]tokenize.Call, error) {
	calls, err := fromTurns(&reply.Reply)
	if err != nil {
		return nil, err
	}
	return calls, r.p.rebuild(ctx, &reply.Reply, Read(from, reply.Evidence), calls)
}

// An Encoder encodes several texts with one renderer, as a sample encodes its prompts.
type Encoder struct{ r renderer }

// NewEncoder returns an Encoder. The template must print the first message's text.
func NewEncoder(m *Model) *Encoder {
	return &Encoder{renderer{model: m, tok: m.Tokenizer}}
}

// Encode returns the ids of the text.
func (e *Encoder) Encode(text string) ([]int32, error) {
	return e.r.prompt(input{messages: history{{role: roleSystem, content: text}}})
}

// Foreign returns a function that reports whether a prompt names another agent than the rollout's,
// or nil if that cannot be known.
func (p *Prompter) Foreign(r *record.Rollout) func(head func(n int) []int32) bool {
	return p.foreign(r)
}
