package prompt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// Config says where prompts come from. The zero value takes the best source that
// proves anything.
type Config struct {
	// Force takes this source and no other. Default SourceNone: every source, the best
	// one first.
	Force tokenize.PromptSource
	// Encoder encodes the texts of tools for SourceLiteral, which alone needs one.
	// It is used from many goroutines at once.
	Encoder tokenize.TextEncoder

	// Tap has the calls that taps saw. If it is nil, there is no source tap.
	Tap *tap.Index

	// Unverified also gives calls a rebuilt prompt that has the right length and that
	// nothing contradicts, graded unverified. Default: such calls are quarantined.
	Unverified bool

	// Model is the model's own template and tokenizer, with which prompts are
	// rebuilt. Where it is nil the sources stored and trace are not there.
	Model *Model
}

// A Model is what turns messages into the ids that the engine was given.
type Model struct {
	Template  *chat.Template
	Tokenizer *bpe.Tokenizer
	// Transformers is the release by whose rules the server renders. ExamineReleases
	// finds it.
	Transformers chat.Transformers

	// VocabSize is the number of ids that the engine can sample, including ids that the
	// tokenizer does not name; 0: unknown.
	VocabSize int
	// StopIDs are the ids at which the engine ends an output; empty: unknown.
	StopIDs []int32

	// Zone is the time zone of the server's process, for a template that prints the time. It
	// is trusted like the tokenizer. If it is nil, every zone is possible.
	Zone *time.Location
}

// ToolOrderHint says what can be done about calls with tokenize.ReasonToolOrder.
const ToolOrderHint = "let the server keep traces (LETTA_TRACK_PROVIDER_TRACE=true, its default), or give the agent one tool, " +
	"or take the rows as unverified with --require any"

// A Prompter finds the prompts of replies. It is safe for concurrent use.
type Prompter struct {
	model   *Model
	literal tokenize.TextEncoder // nil: prompts are looked for
	// turns, stored and trace are the sources that may be used.
	turns, stored, trace bool
	answers              bool       // stored is tried with what answers say first
	tap                  *tap.Index // nil: not that source
	unverified           bool

	finish    finishes
	lanes     lanes
	stats     counters
	renderers sync.Pool // of *renderer
}

// New returns a Prompter, or an error where the source cannot be had.
func New(cfg Config) (*Prompter, error) {
	p := &Prompter{model: cfg.Model, finish: finishes{tapped: cfg.Tap != nil}, unverified: cfg.Unverified, lanes: make(lanes, extraRequests)}
	switch cfg.Force {
	case tokenize.SourceNone:
		p.turns, p.tap, p.stored, p.trace = true, cfg.Tap, cfg.Model != nil, cfg.Model != nil
	case tokenize.SourceTurns:
		p.turns = true
	case tokenize.SourceTap:
		if p.tap = cfg.Tap; p.tap == nil {
			return nil, errors.New("prompt: source tap needs a tap")
		}
	case tokenize.SourceStored:
		p.stored = true
	case tokenize.SourceTrace:
		p.trace = true
	case tokenize.SourceLiteral:
		if p.literal = cfg.Encoder; p.literal == nil {
			return nil, errors.New("prompt: source literal needs a tokenizer for the texts of tools")
		}
	default:
		return nil, fmt.Errorf("prompt: source %s is not supported yet", cfg.Force)
	}
	p.answers = p.stored
	if p.rebuilds() && p.model == nil {
		return nil, fmt.Errorf("prompt: source %s needs the model's tokenizer and chat template", cfg.Force)
	}
	return p, nil
}

// rebuilds reports whether prompts may be rebuilt from what the server keeps.
func (p *Prompter) rebuilds() bool { return p.stored || p.trace }

// Prompts returns one call per assistant turn over all sends, in order. The calls
// point into r. rollout is what is known of the attempt beside the reply; nil: nothing.
//
// An error means that no call of the sample can be used (a *tokenize.AlignError with a
// Reason), or that the server could not be read.
func (p *Prompter) Prompts(ctx context.Context, r *collector.Reply, rollout *record.Rollout) ([]tokenize.Call, error) {
	calls, err := p.fromReply(r)
	if err != nil {
		return nil, err
	}
	if rollout == nil || len(rollout.Sends) != len(r.Sends) {
		p.finish.fill(ctx, r, nil, calls)
		return calls, nil
	}
	defer func() { p.stats.add(rollout.Requests()) }()
	nameSteps(r, rollout, calls)
	if p.tap != nil && !complete(calls) {
		p.fromTap(ctx, r, rollout, calls)
	}
	if p.rebuilds() && !complete(calls) {
		if err := p.rebuild(ctx, r, rollout, calls); err != nil {
			return nil, fmt.Errorf("prompts from the server: %w", err)
		}
	}
	more := rollout
	if fromTap(calls) {
		more = nil // all is proven: nothing is asked for what is left
	} else {
		listSteps(ctx, r, rollout, calls)
	}
	p.finish.fill(ctx, r, more, calls)
	if more != nil { // after everything that reads traces
		if err := p.askTap(ctx, rollout, calls); err != nil {
			return nil, fmt.Errorf("prompts from the server: %w", err)
		}
	}
	detach(calls)
	return calls, nil
}

// detach copies the texts that rows take from calls. They are pieces of answers and traces,
// which would stay in memory for as long as a row waits to be written.
func detach(calls []tokenize.Call) {
	for i := range calls {
		c := &calls[i]
		c.StepID, c.FinishReason = strings.Clone(c.StepID), strings.Clone(c.FinishReason)
	}
}

// fromTap reports whether the tap saw every call.
func fromTap(calls []tokenize.Call) bool {
	return !slices.ContainsFunc(calls, func(c tokenize.Call) bool { return c.Source != tokenize.SourceTap })
}

// complete reports whether every call has a prompt.
func complete(calls []tokenize.Call) bool {
	for i := range calls {
		if calls[i].Grade == tokenize.Quarantined {
			return false
		}
	}
	return true
}

// Stats says what rebuilding cost.
type Stats struct {
	// Requests are those for what the server keeps of the rollouts whose prompts were
	// asked for, whoever made them.
	Requests record.Requests
	// Tap is what the taps saw; nil: there is none.
	Tap *tap.IndexStats
	// Spent is the time that samples spent on rebuilding, requests included, summed.
	Spent time.Duration
}

// Stats returns what was spent so far.
func (p *Prompter) Stats() Stats {
	var seen *tap.IndexStats
	if p.tap != nil {
		seen = new(p.tap.Stats())
	}
	p.stats.mu.Lock()
	defer p.stats.mu.Unlock()
	return Stats{Requests: p.stats.requests, Tap: seen, Spent: time.Duration(p.stats.spent.Load())}
}

type counters struct {
	spent    atomic.Int64
	mu       sync.Mutex
	requests record.Requests
}

func (c *counters) add(r record.Requests) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = c.requests.Plus(r)
}
