package prompt

import (
	"context"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Fetcher reads what the server keeps of a send.
type Fetcher = fetcher

// A Rebuilder rebuilds prompts from evidence that does not come over HTTP.
type Rebuilder struct{ b rebuilder }

// NewRebuilder returns a Rebuilder of the sources that are asked for.
func NewRebuilder(m *Model, stored, trace bool) *Rebuilder {
	return &Rebuilder{rebuilder{model: m, stored: stored, trace: trace, stats: new(counters), ends: new(ends)}}
}

// Unverified gives prompts that are not proven as well.
func (r *Rebuilder) Unverified() *Rebuilder {
	r.b.unverified = true
	return r
}

// An Answered reply is one with what the server keeps of it.
type Answered struct {
	collector.Reply
	Evidence *letta.Evidence
}

// Prompts is Prompter.Prompts with the evidence read through from.
func (r *Rebuilder) Prompts(ctx context.Context, from Fetcher, reply *Answered) ([]tokenize.Call, error) {
	calls, err := fromTurns(&reply.Reply)
	if err != nil {
		return nil, err
	}
	return calls, r.b.rebuild(ctx, reply.Evidence, from, &reply.Reply, calls)
}

// Encoder encodes one text after the other with one renderer, as a sample's prompts
// are.
type Encoder struct{ r renderer }

// NewEncoder returns an Encoder; the template must print the first message's text.
func NewEncoder(m *Model) *Encoder {
	return &Encoder{renderer{template: m.Template, tok: m.Tokenizer}}
}

// Encode returns the ids of the text.
func (e *Encoder) Encode(text string) ([]int32, error) {
	return e.r.prompt(conversation{messages: history{{role: roleSystem, content: text}}.view(false)})
}
