package prompt

import (
	"context"
	"slices"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Fetcher reads what the server keeps of a send.
type Fetcher interface {
	// Steps returns the steps of send i that made tokens, Messages its stored
	// messages, both oldest first.
	Steps(ctx context.Context, i int) ([]letta.Step, error)
	Messages(ctx context.Context, i int) (letta.Messages, error)
	// Trace returns the trace of a step, nil where there is none.
	Trace(ctx context.Context, stepID string) (*letta.ProviderTrace, error)
	// AgentNow reads the agent and the text of its system message again.
	AgentNow(ctx context.Context) (*letta.AgentState, string, error)
}

// Read returns a rollout of which all the same is known, and whose records are read
// through from.
func Read(from Fetcher, r *record.Rollout) *record.Rollout {
	fresh := record.New(source{from, r})
	fresh.Agent, fresh.Conversation, fresh.SystemText, fresh.Late, fresh.Recorded, fresh.Sends = r.Agent, r.Conversation, r.SystemText, r.Late, r.Recorded, r.Sends
	return fresh
}

// A source is a Fetcher as a record.Source.
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

// Conversation is one whose system message is read like the agent's.
func (s source) Conversation(context.Context, string) (*letta.Conversation, error) {
	return &letta.Conversation{InContextMessageIDs: []string{"message-0"}}, nil
}

// A Rebuilder rebuilds prompts from evidence that does not come over HTTP.
type Rebuilder struct{ p *Prompter }

// NewRebuilder returns a Rebuilder of the sources that are asked for.
func NewRebuilder(m *Model, stored, trace bool) *Rebuilder {
	return &Rebuilder{&Prompter{model: m, stored: stored, trace: trace}}
}

// Answers tries what the answers say first, as a Prompter does.
func (r *Rebuilder) Answers() *Rebuilder {
	r.p.answers = true
	return r
}

// WithoutAnswers makes a Prompter ask the server for all that a proof needs.
func (p *Prompter) WithoutAnswers() *Prompter {
	p.answers = false
	return p
}

// Unverified gives prompts that are not proven as well.
func (r *Rebuilder) Unverified() *Rebuilder {
	r.p.unverified = true
	return r
}

// An Answered reply is one with what the server keeps of it.
type Answered struct {
	collector.Reply
	Evidence *record.Rollout
	Client   *letta.Client // where it is read
}

// Prompts is Prompter.Prompts with the evidence read through from.
func (r *Rebuilder) Prompts(ctx context.Context, from Fetcher, reply *Answered) ([]tokenize.Call, error) {
	calls, err := fromTurns(&reply.Reply)
	if err != nil {
		return nil, err
	}
	return calls, r.p.rebuild(ctx, &reply.Reply, Read(from, reply.Evidence), calls)
}

// Encoder encodes one text after the other with one renderer, as a sample's prompts
// are.
type Encoder struct{ r renderer }

// NewEncoder returns an Encoder; the template must print the first message's text.
func NewEncoder(m *Model) *Encoder {
	return &Encoder{renderer{model: m, tok: m.Tokenizer}}
}

// Encode returns the ids of the text.
func (e *Encoder) Encode(text string) ([]int32, error) {
	return e.r.prompt(input{messages: history{{role: roleSystem, content: text}}})
}

// Foreign reports whether a prompt names another agent than that of the rollout; nil: that
// cannot be known.
func (p *Prompter) Foreign(r *record.Rollout) func(head func(n int) []int32) bool {
	return p.foreign(r)
}
