package prompt

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
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
func (b *rebuilder) fill(ctx context.Context, reply *collector.Reply, e *record.Rollout, calls []tokenize.Call) error {
	if e == nil {
		return nil
	}
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

	w := &rebuild{rollout: e, calls: calls, r: r, stats: b.stats, ends: b.ends}
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
	// Requests are those for what the server keeps of the rollouts whose prompts were
	// asked for, whoever made them.
	Requests record.Requests
	// Spent is the time that samples spent on it, requests included, summed.
	Spent time.Duration
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

// Stats returns what was spent so far.
func (p *Prompter) Stats() Stats {
	p.stats.mu.Lock()
	defer p.stats.mu.Unlock()
	return Stats{Requests: p.stats.requests, Spent: time.Duration(p.stats.spent.Load())}
}
