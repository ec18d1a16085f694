package prompt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// Config selects the source of prompts. By default, each prompt comes from the best source that
// proves it.
type Config struct {
	// Force restricts the Prompter to one source. The default, SourceNone, allows every source and
	// tries the best source first.
	Force tokenize.PromptSource
	// Encoder encodes tool text. Only SourceLiteral uses it. It must be safe for concurrent use.
	Encoder tokenize.TextEncoder

	// Tap contains the calls that taps recorded. If it is nil, the source tap is not used.
	Tap *tap.Index

	// Unverified accepts rebuilt prompts without proof if their length is right and no record
	// contradicts them. Their calls are graded unverified. By default, these calls are quarantined.
	Unverified bool

	// Model is the model's own template and tokenizer, which are needed to rebuild prompts. If it
	// is nil, the sources stored and trace are not used.
	Model *Model
}

// A Model turns messages into the ids that the engine received.
type Model struct {
	Template  *chat.Template
	Tokenizer *bpe.Tokenizer
	// Transformers is the release of the transformers library whose rules the server follows. See
	// ExamineReleases.
	Transformers chat.Transformers

	// VocabSize is the number of ids that the engine can sample, including ids that are not in the
	// tokenizer. It is 0 if unknown.
	VocabSize int
	// StopIDs contains the ids at which the engine ends an output. It is empty if the ids are
	// unknown.
	StopIDs []int32

	// Zone is the time zone of the server's process. It is needed only if the template prints the
	// time. Like the tokenizer, it is trusted without a check. If Zone is nil, every UTC offset is
	// tried.
	Zone *time.Location
}

// ToolOrderHint explains how to prove calls that have the reason tokenize.ReasonToolOrder.
const ToolOrderHint = "enable traces on the server (LETTA_TRACK_PROVIDER_TRACE=true, the default), use an agent with one tool, " +
	"or accept unverified rows with --require any"

// A Prompter finds the prompts of replies. It is safe for concurrent use.
type Prompter struct {
	model   *Model
	literal tokenize.TextEncoder // set only if the forced source is literal
	// The fields turns, stored and trace are true if the source with the same name can be used.
	turns, stored, trace bool
	answers              bool       // the source stored tries the answers before the records
	tap                  *tap.Index // nil if the source tap is not used
	unverified           bool

	finish    finishes
	lanes     lanes
	renderers sync.Pool // of *renderer

	mu    sync.Mutex
	stats Stats // without Tap
}

// New returns a Prompter. It returns an error if cfg lacks a field that the forced source needs.
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
			return nil, errors.New("prompt: source literal needs a tokenizer for the tool results")
		}
	default:
		return nil, fmt.Errorf("prompt: source %s is not supported", cfg.Force)
	}
	p.answers = p.stored
	if p.rebuilds() && p.model == nil {
		return nil, fmt.Errorf("prompt: source %s needs the model's tokenizer and chat template", cfg.Force)
	}
	return p, nil
}

// rebuilds reports whether prompts can be rebuilt from the server's records.
func (p *Prompter) rebuilds() bool { return p.stored || p.trace }

// Prompts returns one call per assistant turn over all sends, in order. The calls share memory with
// r. The parameter rollout contains all other data of the attempt. If rollout is nil, Prompts uses
// only r.
//
// If no call of the sample can be used, Prompts returns a *tokenize.AlignError with a Reason. Any
// other error means that data could not be read from the server.
func (p *Prompter) Prompts(ctx context.Context, r *collector.Reply, rollout *record.Rollout) ([]tokenize.Call, error) {
	calls, err := p.fromReply(r)
	if err != nil {
		return nil, err
	}
	if rollout == nil || len(rollout.Sends) != len(r.Sends) {
		p.finish.fill(ctx, r, nil, calls)
		return calls, nil
	}
	defer func() { p.addStats(0, rollout.Requests()) }()
	nameSteps(r, rollout, calls)
	if p.tap != nil && !complete(calls) {
		p.fromTap(ctx, r, rollout, calls)
	}
	if p.rebuilds() && !complete(calls) {
		if err := p.rebuild(ctx, r, rollout, calls); err != nil {
			return nil, fmt.Errorf("rebuild prompts: %w", err)
		}
	}
	if !slices.ContainsFunc(calls, func(c tokenize.Call) bool { return c.Source != tokenize.SourceTap }) {
		p.finish.fill(ctx, r, nil, calls) // the tap proved all prompts: make no requests
	} else {
		listSteps(ctx, r, rollout, calls)
		p.finish.fill(ctx, r, rollout, calls)
		if err := p.checkTap(ctx, rollout, calls); err != nil { // runs after all other code that reads traces
			return nil, fmt.Errorf("rebuild prompts: %w", err)
		}
	}
	detach(calls)
	return calls, nil
}

// detach copies the strings that rows keep. Without the copies, the strings would keep whole
// answers and traces in memory until the row is written.
func detach(calls []tokenize.Call) {
	for i := range calls {
		c := &calls[i]
		c.StepID, c.FinishReason = strings.Clone(c.StepID), strings.Clone(c.FinishReason)
	}
}

func complete(calls []tokenize.Call) bool {
	return !slices.ContainsFunc(calls, func(c tokenize.Call) bool { return c.Grade == tokenize.Quarantined })
}

// Stats measures the cost of rebuilding prompts.
type Stats struct {
	// Requests counts the record requests of all rollouts that were passed to Prompts.
	Requests record.Requests
	// Tap contains the counts from the taps. It is nil if there is no tap.
	Tap *tap.IndexStats
	// Spent is the total time that samples spent on rebuilding, including requests.
	Spent time.Duration
}

// Stats returns the cost so far.
func (p *Prompter) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	if p.tap != nil {
		s.Tap = new(p.tap.Stats())
	}
	return s
}

func (p *Prompter) addStats(spent time.Duration, requests record.Requests) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Spent += spent
	p.stats.Requests = p.stats.Requests.Plus(requests)
}
