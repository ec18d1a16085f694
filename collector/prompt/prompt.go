package prompt

import (
	"context"
	"errors"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// Config says where prompts come from. The zero value takes the best source that
// proves anything.
type Config struct {
	// Force takes this source and no other. Default SourceNone: the whole ladder.
	Force tokenize.PromptSource
	// Encoder encodes the texts of tools for SourceLiteral, which alone needs one.
	// It is used from many goroutines at once.
	Encoder tokenize.TextEncoder

	// Unverified gives calls also prompts that are rebuilt with the right length and not
	// shown to be the model's, graded unverified. Default: such calls are quarantined.
	Unverified bool

	// Model is the model's own template and tokenizer, with which prompts are
	// rebuilt. Where it is nil the sources stored and trace are not there.
	Model *Model
}

// A Model is what turns messages into the ids that the engine was given.
type Model struct {
	Template  *chat.Template
	Tokenizer *bpe.Tokenizer
}

// ToolOrderHint says what can be done about calls with tokenize.ReasonToolOrder.
const ToolOrderHint = "let the server keep traces (LETTA_TRACK_PROVIDER_TRACE=true, its default), or give the agent one tool, " +
	"or take the rows as unverified with --require any"

// A Prompter finds the prompts of replies. It is safe for concurrent use.
type Prompter struct {
	ladder  []rung
	literal tokenize.TextEncoder // nil: climb the ladder
	ends    ends
	stats   counters
}

// A rung is one source, or two that share what they fetch: fill sets PromptIDs,
// Source and Grade, and clears Reason, of those calls of the reply whose prompt it
// can prove and that have none yet; of the others it says in Note why not.
type rung struct {
	name string
	fill func(ctx context.Context, r *collector.Reply, e *record.Rollout, calls []tokenize.Call) error
}

// New returns a Prompter, or an error where the source cannot be had.
func New(cfg Config) (*Prompter, error) {
	p := new(Prompter)
	turns := rung{"turns", fillTurns}
	rebuilt := func(stored, trace bool) rung {
		b := &rebuilder{model: cfg.Model, stored: stored, trace: trace, unverified: cfg.Unverified, stats: &p.stats, ends: &p.ends}
		return rung{"the server", b.fill}
	}
	if cfg.Model == nil && (cfg.Force == tokenize.SourceStored || cfg.Force == tokenize.SourceTrace) {
		return nil, fmt.Errorf("prompt: source %s needs the model's tokenizer and chat template", cfg.Force)
	}
	switch cfg.Force {
	case tokenize.SourceNone:
		p.ladder = []rung{turns}
		if cfg.Model != nil {
			p.ladder = append(p.ladder, rebuilt(true, true))
		}
	case tokenize.SourceTurns:
		p.ladder = []rung{turns}
	case tokenize.SourceStored:
		p.ladder = []rung{rebuilt(true, false)}
	case tokenize.SourceTrace:
		p.ladder = []rung{rebuilt(false, true)}
	case tokenize.SourceLiteral:
		if cfg.Encoder == nil {
			return nil, errors.New("prompt: source literal needs a tokenizer for the texts of tools")
		}
		p.literal = cfg.Encoder
	default:
		return nil, fmt.Errorf("prompt: source %s is not supported yet", cfg.Force)
	}
	return p, nil
}

// Prompts returns one call per assistant turn over all sends, in order. The calls
// point into r. e is what the server keeps of the reply; nil: nothing.
func (p *Prompter) Prompts(ctx context.Context, r *collector.Reply, e *record.Rollout) ([]tokenize.Call, error) {
	if e != nil && len(e.Sends) != len(r.Sends) {
		e = nil
	}
	if e != nil {
		defer func() { p.stats.add(e.Requests()) }()
	}
	calls, err := p.prompts(ctx, r, e)
	if err != nil {
		return nil, err
	}
	listSteps(ctx, r, e, calls)
	p.ends.fill(ctx, r, e, calls)
	return calls, nil
}

// prompts is Prompts without the ends of the calls.
func (p *Prompter) prompts(ctx context.Context, r *collector.Reply, e *record.Rollout) ([]tokenize.Call, error) {
	if p.literal != nil {
		calls, err := literal(p.literal, r)
		nameSteps(r, e, calls)
		return calls, err
	}
	calls, err := fromTurns(r)
	if err != nil {
		return nil, err
	}
	nameSteps(r, e, calls)
	if len(p.ladder) > 0 && p.ladder[0].name != "turns" {
		forget(calls)
	}
	for _, g := range p.ladder {
		if complete(calls) {
			break
		}
		if err := g.fill(ctx, r, e, calls); err != nil {
			return nil, fmt.Errorf("prompts from %s: %w", g.name, err)
		}
	}
	return calls, nil
}

// forget drops the prompts that the turns hold: another source was asked for.
func forget(calls []tokenize.Call) {
	for i := range calls {
		c := &calls[i]
		c.PromptIDs, c.Source, c.Grade, c.Reason = nil, tokenize.SourceNone, tokenize.Quarantined, tokenize.ReasonNoPrompt
	}
}

// complete says that no call is left for the rungs below.
func complete(calls []tokenize.Call) bool {
	for i := range calls {
		if calls[i].Grade == tokenize.Quarantined {
			return false
		}
	}
	return true
}
