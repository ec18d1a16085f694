package prompt

import (
	"context"
	"errors"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// Config says where prompts come from. The zero value takes the best source that
// proves anything.
type Config struct {
	// Force takes this source and no other. Default SourceNone: the whole ladder.
	Force tokenize.PromptSource
	// Encoder encodes the texts of tools for SourceLiteral, which alone needs one.
	// It is used from many goroutines at once.
	Encoder tokenize.TextEncoder
}

// A Prompter is a collector.Prompter. It is safe for concurrent use.
type Prompter struct {
	ladder  []rung
	literal tokenize.TextEncoder // nil: climb the ladder
}

// A rung is one source: fill sets PromptIDs, Source and Grade, and clears Reason,
// of those calls of the reply whose prompt it can prove and that have none yet.
type rung struct {
	source tokenize.PromptSource
	fill   func(ctx context.Context, r *collector.Reply, calls []tokenize.Call) error
}

// rungs lists the sources that can be climbed, best first.
var rungs = [...]rung{
	{tokenize.SourceTurns, fillTurns},
}

// New returns a Prompter, or an error where the source cannot be had.
func New(cfg Config) (*Prompter, error) {
	switch cfg.Force {
	case tokenize.SourceNone:
		return &Prompter{ladder: rungs[:]}, nil
	case tokenize.SourceLiteral:
		if cfg.Encoder == nil {
			return nil, errors.New("prompt: source literal needs a tokenizer for the texts of tools")
		}
		return &Prompter{literal: cfg.Encoder}, nil
	default:
		for i, r := range rungs {
			if r.source == cfg.Force {
				return &Prompter{ladder: rungs[i : i+1]}, nil
			}
		}
		return nil, fmt.Errorf("prompt: source %s is not there yet", cfg.Force)
	}
}

// Prompts returns one call per assistant turn over all sends, in order. The calls
// point into r.
func (p *Prompter) Prompts(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
	if p.literal != nil {
		return literal(p.literal, r)
	}
	calls, err := fromTurns(r)
	if err != nil {
		return nil, err
	}
	for _, g := range p.ladder {
		if complete(calls) {
			break
		}
		if err := g.fill(ctx, r, calls); err != nil {
			return nil, fmt.Errorf("prompts from %s: %w", g.source, err)
		}
	}
	return calls, nil
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
