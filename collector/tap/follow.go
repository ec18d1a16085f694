package tap

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// A Feed delivers the calls of one tap. A *Reader is one.
type Feed interface {
	// Next waits for the next call and returns it. Times are by the tap's clock.
	Next(ctx context.Context) (*Call, error)
	// Await waits until Next has returned every call added before t (local time) and is called again.
	Await(ctx context.Context, t time.Time) error
	// Skew returns how far the tap's clock is ahead of this machine's.
	Skew() time.Duration
	// Trouble returns how often calls can have been lost so far, and why reading fails now, or nil.
	Trouble() (lost int64, err error)
}

type feed struct {
	Feed
	last time.Time // everything that ended before it is in the index, or in a gap
	lost int64     // last result of Trouble
	over bool      // it cannot be read any more
}

// Run fills the index until ctx ends. If a feed fails, Run follows the others until they end, then
// returns the error.
func (x *Index) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, f := range x.feeds {
		g.Go(func() error { return x.follow(ctx, f) })
	}
	err := g.Wait()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that was asked for
	}
	return err
}

func (x *Index) follow(ctx context.Context, f *feed) error {
	for first := true; ; first = false {
		c, err := f.Next(ctx)
		if err != nil {
			x.mu.Lock()
			f.over = true
			x.mu.Unlock()
			return err
		}
		skew := f.Skew()
		own := *c
		own.Began, own.Ended = c.Began.Add(-skew), c.Ended.Add(-skew)
		if first && x.cfg.Since.IsZero() {
			x.notBefore(own.Began)
		}
		x.hear(f, own.Ended, own.Ended)
		x.add(&own)
	}
}

// notBefore notes that a feed has no calls before t, because its spool removed them.
func (x *Index) notBefore(t time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t.After(x.since) {
		x.since = t
	}
}

// hear adds a gap that ends now if the feed has lost calls. The feed has delivered everything that
// ended before passed.
func (x *Index) hear(f *feed, now, passed time.Time) {
	lost, _ := f.Trouble()
	x.mu.Lock()
	defer x.mu.Unlock()
	if lost > f.lost {
		f.lost = lost
		x.gaps = append(x.gaps, gap{f.last, now, -1, ""})
	}
	if passed.After(f.last) {
		f.last = passed
	}
}

// await waits until every feed has delivered everything added before t. It reports false if it gave
// up.
func (x *Index) await(ctx context.Context, t time.Time) bool {
	seen := int64(-1)
	for range maxWaits {
		now := x.calls()
		if now == seen {
			break // nothing came during the last wait
		}
		seen = now
		all := true
		for _, f := range x.feeds {
			if x.isOver(f) {
				return false
			}
			limited, cancel := context.WithTimeout(ctx, x.cfg.Patience)
			err := f.Await(limited, t)
			cancel()
			if err != nil {
				all = false
				continue
			}
			x.hear(f, time.Now(), t) // also adds gaps for losses that no call has revealed
		}
		if all || ctx.Err() != nil {
			return all && len(x.feeds) > 0
		}
	}
	return false
}

func (x *Index) isOver(f *feed) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return f.over
}

// maxWaits bounds how often Join waits for IndexConfig.Patience if calls keep arriving without
// reaching the time it waits for. Reading a large spool for the first time takes long, and a tap
// whose clock is behind never reaches that time.
const maxWaits = 10

func (x *Index) calls() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stats.Calls
}

// over returns the end of the rollout's last send, or now if an end is unknown.
func (r *Rollout) over() time.Time {
	var last time.Time
	for i := range r.Sends {
		if to := r.Sends[i].To; to.IsZero() {
			return time.Now()
		} else if to.After(last) {
			last = to
		}
	}
	return last
}

// Trouble returns how often calls can have been lost so far, and why reading fails now, or nil.
func (r *Reader) Trouble() (lost int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.stats
	return s.Damaged + s.Torn + s.Dropped + s.Lost + s.Orphans + s.Removed, cmp.Or(r.fatal, s.Err)
}
