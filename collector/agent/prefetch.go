package agent

import (
	"context"
	"sync"
)

// While the server works on a send, a prefetcher fetches the records that Prompts will read for the
// previous send. It belongs to one call of Run and fetches for only one send at a time.
type prefetcher struct {
	g      *agent
	ctx    context.Context //nolint:containedctx // the context of the fetch goroutine
	cancel context.CancelFunc
	busy   chan struct{} // holds a value while a fetch runs
	all    sync.WaitGroup
}

func newPrefetcher(ctx context.Context, g *agent) *prefetcher {
	p := &prefetcher{g: g, busy: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// answered starts a fetch of the records for the last answered send, unless an earlier fetch is
// still running.
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

// end waits for the fetch in progress. If Run failed with err, end cancels the fetch first.
func (p *prefetcher) end(err error) {
	if err != nil {
		p.cancel()
	}
	p.all.Wait()
	p.cancel()
}
