package tap

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// A Feed delivers the calls of one tap. A *Reader is one.
type Feed interface {
	// Next returns the next call, and waits for one. Times are by the clock of the tap.
	Next(ctx context.Context) (*Call, error)
	// Await waits until Next has returned every call that was added before t, by this
	// machine's clock, and was called again.
	Await(ctx context.Context, t time.Time) error
	// Skew is how far the clock of the tap is ahead of this machine's.
	Skew() time.Duration
	// Trouble returns how many times calls may have been lost until now, and why nothing
	// can be read now; nil: it can.
	Trouble() (lost int64, err error)
}

// A feed is what the index knows of one.
type feed struct {
	Feed
	last time.Time // what ended before is here, or in a gap
	lost int64     // as Trouble said last
	over bool      // it cannot be read any more
}

// Run fills the index until ctx is done, or a feed cannot be read any more: then the others
// are still followed, and Run returns its error at the end.
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

// follow adds what a feed delivers.
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

// notBefore notes that a feed has no calls before t: those that its spool had are removed.
func (x *Index) notBefore(t time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t.After(x.since) {
		x.since = t
	}
}

// hear notes what a feed has lost: until now, if anything. It has delivered what ended before
// passed.
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

// await waits until every feed has delivered all that was added before t, and reports whether
// that is so.
func (x *Index) await(ctx context.Context, t time.Time) bool {
	seen := int64(-1)
	for range maxWaits {
		now := x.calls()
		if now == seen {
			break // nothing came while we waited
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
			x.hear(f, time.Now(), t) // also of what was lost and no call has told
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

// maxWaits bounds how often Join waits for IndexConfig.Patience, if calls come all the time
// and never those that it waits for: the first look at a large spool takes long, and a tap
// whose clock is behind is never there.
const maxWaits = 10

func (x *Index) calls() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stats.Calls
}

// over returns when the last send of the rollout was over, or now where that is not known.
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

// Trouble returns how many times calls may have been lost until now, and why nothing can be
// read now; nil: it can.
func (r *Reader) Trouble() (lost int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.stats
	return s.Damaged + s.Torn + s.Dropped + s.Lost + s.Orphans + s.Removed, cmp.Or(r.fatal, s.Err)
}
