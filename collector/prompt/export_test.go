package prompt

import (
	"context"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Rebuilder rebuilds prompts from records, without the other steps of a Prompter.
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

// Prompts is Prompter.Prompts.
func (r *Rebuilder) Prompts(ctx context.Context, reply *collector.Reply, rollout *record.Rollout) ([]tokenize.Call, error) {
	calls, err := fromTurns(reply)
	if err != nil {
		return nil, err
	}
	return calls, r.p.rebuild(ctx, reply, rollout, calls)
}

// Encoder returns a function that encodes several texts with one renderer, as a sample encodes its
// prompts. The template must print the first message's text.
func Encoder(m *Model) func(text string) ([]int32, error) {
	r := renderer{model: m, tok: m.Tokenizer}
	return func(text string) ([]int32, error) {
		return r.prompt(input{messages: history{{role: roleSystem, content: text}}})
	}
}

// Foreign returns a function that reports whether a prompt names another agent than the rollout's,
// or nil if that cannot be known.
func (p *Prompter) Foreign(r *record.Rollout) func(head func(n int) []int32) bool {
	return p.foreign(r)
}
