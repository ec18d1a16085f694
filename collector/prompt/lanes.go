package prompt

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Lanes bound the requests that samples make beside their own one: a run has files for one
// connection per sample, and a few more.
type lanes chan struct{}

// extraRequests is how many such requests a Prompter makes at a time. It is part of what a
// run opens beside the connections of its samples.
const extraRequests = 16

// take takes a lane, and reports whether one is free.
func (l lanes) take() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l lanes) give() { <-l }

// together calls all of them: side by side as far as lanes are free, else one after the
// other. It returns the first error, and ends the others then.
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
			g.Go(func() error { return err }) // ends the others
			break
		}
	}
	return g.Wait()
}
