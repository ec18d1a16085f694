package prompt

import (
	"context"
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// A rebuild finds the prompts of one sample's calls from the server's records.
type rebuild struct {
	rollout    *record.Rollout
	transcript *transcript
	calls      []tokenize.Call
	r          *renderer
	finish     *finishes
	lanes      lanes

	// changed is nil until the agent is reread. It then names the part of the agent that has
	// changed, or is empty if nothing has changed.
	changed *string
	// unverified maps the index of a call to a prompt that has the right length and is neither
	// proven nor contradicted.
	unverified map[int]unproven
}

// An unproven prompt has the right length but no proof.
type unproven struct {
	ids    []int32
	source tokenize.PromptSource
}

func newRebuild(rollout *record.Rollout, calls []tokenize.Call, finish *finishes, lanes lanes) *rebuild {
	return &rebuild{rollout: rollout, calls: calls, finish: finish, lanes: lanes, unverified: make(map[int]unproven)}
}

// rebuild finds the missing prompts of calls and grades the calls.
func (p *Prompter) rebuild(ctx context.Context, reply *collector.Reply, rollout *record.Rollout, calls []tokenize.Call) error {
	began := time.Now()
	defer func() { p.addStats(time.Since(began), record.Requests{}) }()
	b := newRebuild(rollout, calls, &p.finish, p.lanes)
	if done, err := p.fromAnswers(ctx, reply, b); err != nil || done {
		return err
	}
	if err := b.join(ctx, reply); err != nil {
		return err
	}
	stored := p.stored && !rollout.Recorded
	if stored {
		if err := b.findWitnesses(ctx); err != nil {
			return err
		}
	}
	// Take a renderer only now, so that no sample holds a renderer while it waits for the server.
	// This keeps the number of renderers small, and their memory is reused.
	b.r = p.renderer(b.transcript.longestPrompt())
	defer p.release(b.r)
	if stored {
		if err := b.fromStored(false); err != nil {
			return err
		}
	}
	if p.trace && !complete(calls) {
		b.r.reset()
		if err := b.fromTraces(ctx); err != nil {
			return err
		}
	}
	b.gradeRest(p.unverified)
	return nil
}

// renderer returns a renderer from the pool for one sample. The parameter longest is the number of
// ids in the sample's longest prompt, or 0 if unknown.
func (p *Prompter) renderer(longest int) *renderer {
	r, ok := p.renderers.Get().(*renderer)
	if !ok {
		r = &renderer{model: p.model, tok: p.model.Tokenizer, clock: p.model.Template.ReadsClock()}
	}
	r.longest = longest
	return r
}

func (p *Prompter) release(r *renderer) {
	r.reset()
	p.renderers.Put(r)
}

// note appends text to the note of call i. The note explains the grade of the call to users.
func (b *rebuild) note(i int, format string, args ...any) {
	c := &b.calls[i]
	c.Note = noted(c.Note, fmt.Sprintf(format, args...))
}

func (b *rebuild) noteAll(text string) {
	for i := range b.calls {
		if b.calls[i].Grade == tokenize.Quarantined {
			b.note(i, "%s", text)
		}
	}
}
