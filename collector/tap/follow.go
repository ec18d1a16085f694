package tap

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// A Feed delivers the calls of one tap. *Reader implements Feed.
type Feed interface {
	// Next waits for the next call and returns it. The call's times are measured by the tap's
	// clock.
	Next(ctx context.Context) (*Call, error)
	// Await waits until Next has returned every call that was added before t and Next has then been
	// called once more. The time t is measured by this machine's clock.
	Await(ctx context.Context, t time.Time) error
	// Skew returns how far the tap's clock is ahead of this machine's clock.
	Skew() time.Duration
	// Trouble returns how many events so far might have caused a loss of calls. It also returns the
	// error that currently prevents reading, or nil.
	Trouble() (lost int64, err error)
}

type feed struct {
	Feed
	last time.Time // every call that ended before this time is in the index or in a gap
	lost int64     // the last count that Trouble returned
	over bool      // Next has returned an error
}

// Run adds the calls from the feeds to the index until ctx ends. If a feed fails, Run continues
// with the other feeds. If every feed has failed, Run returns an error.
func (x *Index) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, f := range x.feeds {
		g.Go(func() error { return x.follow(ctx, f) })
	}
	err := g.Wait()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the caller ended ctx
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

// notBefore records that a feed no longer has the calls from before t, because the spool has
// removed these calls.
func (x *Index) notBefore(t time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t.After(x.since) {
		x.since = t
	}
}

// hear adds a gap if the feed has lost further calls. The gap ends at the time in the parameter
// now. The feed must have delivered every call that ended before the time in the parameter passed.
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

// await waits until every feed has delivered every call that was added before t. It returns false
// if it stopped waiting earlier.
func (x *Index) await(ctx context.Context, t time.Time) bool {
	seen := int64(-1)
	for range maxWaits {
		now := x.calls()
		if now == seen {
			break // no call arrived during the last wait
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
			x.hear(f, time.Now(), t) // add a gap if calls were lost since the last delivered call
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

// maxWaits limits the number of times that Join waits for IndexConfig.Patience. Without this limit,
// Join would wait as long as older calls keep arriving. During the first read of a large spool,
// such a wait can be long. If a tap's clock is behind, the wait might never end.
const maxWaits = 10

func (x *Index) calls() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stats.Calls
}

// over returns the end of the rollout's last send. If the end of any send is unknown, over returns
// the current time.
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

// Trouble returns how many events so far might have caused a loss of calls. It also returns the
// error that currently prevents reading, or nil.
func (r *Reader) Trouble() (lost int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.stats
	return s.Damaged + s.Torn + s.Dropped + s.Lost + s.Orphans + s.Removed, cmp.Or(r.fatal, s.Err)
}
