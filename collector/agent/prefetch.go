package agent

import (
	"context"
	"sync"
)

// A prefetcher fetches what Prompts will read of one send while the server works at the
// next one, in one goroutine at a time. It belongs to one Run, which ends it.
type prefetcher struct {
	g      *agent
	ctx    context.Context //nolint:containedctx // that of its goroutine
	cancel context.CancelFunc
	busy   chan struct{} // holds one element while something is being fetched
	all    sync.WaitGroup
}

func newPrefetcher(ctx context.Context, g *agent) *prefetcher {
	p := &prefetcher{g: g, busy: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// answered begins to fetch for the last answered send. While it is still at an earlier
// one it leaves the last one to Prompts.
func (p *prefetcher) answered() {
	reply := p.g.reply
	n := len(reply.Sends)
	if n == 0 || p.g.cfg.Prompter == nil {
		return
	}
	select {
	case p.busy <- struct{}{}:
	default:
		return
	}
	send, turns := p.g.rollout.Sends[n-1], reply.Sends[n-1].Turns
	p.all.Go(func() {
		defer func() { <-p.busy }()
		p.g.cfg.Prompter.Prefetch(p.ctx, p.g.rollout, send, turns)
	})
}

// end waits for what is being fetched, which is of no use where err is why Run fails.
func (p *prefetcher) end(err error) {
	if err != nil {
		p.cancel()
	}
	p.all.Wait()
	p.cancel()
}
