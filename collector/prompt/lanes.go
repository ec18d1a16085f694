package prompt

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// lanes limits the number of concurrent requests beyond one per sample. A run has only enough file
// descriptors for one connection per sample and a few more connections.
type lanes chan struct{}

// extraRequests is the number of lanes per Prompter. Each request in a lane needs a file
// descriptor.
const extraRequests = 16

// take claims a free lane without waiting. It reports whether a lane was free.
func (l lanes) take() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l lanes) give() { <-l }

// together calls all functions. It runs them concurrently while lanes are free, and otherwise one
// after the other. If a function fails, together cancels the others and returns the first error.
func (l lanes) together(ctx context.Context, all ...func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, f := range all {
		if i < len(all)-1 && l.take() {
			g.Go(func() error {
				defer l.give()
				return f(ctx)
			})
			continue
		}
		if err := f(ctx); err != nil {
			g.Go(func() error { return err }) // cancels the others
			break
		}
	}
	return g.Wait()
}
