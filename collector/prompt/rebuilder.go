package prompt

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A rebuilder is the rung of the sources stored and trace. It may be used from
// many goroutines at once.
type rebuilder struct {
	model         *Model
	stored, trace bool
	unverified    bool // give prompts that are not proven as well
	stats         *counters
	ends          *ends
	renderers     sync.Pool // of *renderer
}

// fill finds the prompts of the calls that have none. A reply of which the server keeps
// nothing is left as it is.
func (b *rebuilder) fill(ctx context.Context, reply *collector.Reply, e *letta.Evidence, calls []tokenize.Call) error {
	if e == nil {
		return nil
	}
	return b.rebuild(ctx, e, e, reply, calls)
}

// rebuild is fill with the evidence at hand, read through from.
func (b *rebuilder) rebuild(ctx context.Context, e *letta.Evidence, from fetcher, reply *collector.Reply, calls []tokenize.Call) error {
	began := time.Now()
	defer func() { b.stats.spent.Add(int64(time.Since(began))) }()

	r, _ := b.renderers.Get().(*renderer)
	if r == nil {
		r = &renderer{template: b.model.Template, tok: b.model.Tokenizer}
	}
	defer func() {
		r.reset()
		b.renderers.Put(r)
	}()

	w := &rebuild{evidence: e, from: from, calls: calls, r: r, stats: b.stats, ends: b.ends}
	if err := w.load(ctx, reply); err != nil {
		return err
	}
	if b.stored {
		if err := w.findWitnesses(ctx); err != nil {
			return err
		}
		if err := w.fromStored(); err != nil {
			return err
		}
	}
	if b.trace && !complete(calls) {
		r.reset()
		if err := w.fromTraces(ctx); err != nil {
			return err
		}
	}
	w.blame()
	if b.unverified {
		w.takeUnproven()
	}
	return nil
}

// Stats says what rebuilding cost.
type Stats struct {
	// Requests is the number of extra requests: two per send, two per conversation, two
	// to read an agent again, and the traces. A trace that was late and asked for again
	// counts once.
	Requests int64
	// Spent is the time that samples spent on it, requests included, summed.
	Spent time.Duration
}

type counters struct{ requests, spent atomic.Int64 }

// Stats returns what was spent so far.
func (p *Prompter) Stats() Stats {
	return Stats{Requests: p.stats.requests.Load(), Spent: time.Duration(p.stats.spent.Load())}
}
