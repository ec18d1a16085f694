package prompt

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// lanes bounds the requests that samples make in addition to their own: a run has file descriptors
// for one connection per sample, and a few more.
type lanes chan struct{}

// extraRequests is the number of such concurrent requests per Prompter. They count as open files.
const extraRequests = 16

// take claims a free lane, without waiting. It reports whether there was one.
func (l lanes) take() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l lanes) give() { <-l }

// together calls all functions, concurrently while lanes are free, otherwise one after the other.
// It returns the first error and cancels the others.
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
