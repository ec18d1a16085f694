package collector

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"
)

// A feed sends the samples of the tasks to the workers.
//
// If no earlier process left anything, it reads the tasks once and sends their samples in
// order. Else it reads them up to three times, so that what was begun ends first and no list
// of samples must be kept:
//
//	1  survey   look every sample up, and count what the dataset has of it
//	            → send open attempts, each to the endpoint where it was made
//	2  begun    send the other samples of groups that have any of the above
//	3  rest     send the groups that nobody began
//
// It keeps one byte per sample, and the claims of the open attempts, which are at most as
// many as an earlier process had in flight.
type feed struct {
	c     *Collector
	tasks iter.Seq2[*Task, error]
	work  chan<- claim
	open  *sync.WaitGroup // counts the claims on their way or in hands
}

// A due is when a sample is to be sent. The survey keeps one for each sample.
type due uint8

const (
	dueNever due = iota // done, not asked for, or an open attempt
	dueBegun            // with the groups that were begun
	dueRest
)

// run sends every sample that is to be sent, and returns when the last claim was taken. The
// error is the one of the task source, or the reason why the run stops.
func (f *feed) run(ctx context.Context) error {
	if f.c.cfg.Left == nil {
		for _, ep := range f.c.endpoints {
			close(ep.pinned)
		}
		if err := f.all(ctx); err != nil {
			return err
		}
		return f.more(ctx)
	}
	s, surveyErr := f.survey(ctx)
	f.c.counters.filteredEarlier(f.c.cfg.Filtered)
	if n := f.c.Stats().Earlier.Committed; n > 0 {
		f.c.wellDone(n)
		f.c.barren.gaveRow()
	}
	var pinned sync.WaitGroup
	defer pinned.Wait()
	for i, ep := range f.c.endpoints {
		pinned.Go(func() { f.pin(ctx, ep, s.open[i]) })
	}
	for _, cl := range s.stray {
		if ok, err := f.send(ctx, cl); !ok {
			return err
		}
	}
	for _, d := range []due{dueBegun, dueRest} {
		if err := f.some(ctx, s.dues, d); err != nil {
			return err
		}
	}
	if surveyErr != nil {
		return surveyErr
	}
	return f.more(ctx)
}

// samples calls do with the samples of the tasks in order, up to Limit, until do returns
// false. It returns the error of the task source.
func (f *feed) samples(do func(n int, cl claim) bool) error {
	c, n := f.c, 0
	for t, err := range f.tasks {
		if err != nil {
			return fmt.Errorf("task source: %w", err)
		}
		size := c.cfg.Samples
		if t.Samples > 0 {
			size = t.Samples
		}
		group := GroupID(t)
		for i := range size {
			if n == c.limited(n+1) {
				return nil
			}
			if !do(n, claim{sample: sample{task: t, group: group, key: sampleKey(group, i), index: i, groupSize: size}}) {
				return nil
			}
			n++
		}
	}
	return nil
}

// all sends every sample.
func (f *feed) all(ctx context.Context) (err error) {
	sourceErr := f.samples(func(n int, cl claim) (ok bool) {
		f.c.counters.planned(n + 1)
		ok, err = f.send(ctx, cl)
		return ok
	})
	if err != nil {
		return err
	}
	return sourceErr
}

// A survey is what the first reading of the tasks finds.
type survey struct {
	dues  []due     // by the number of the sample
	open  [][]claim // open attempts, by the index of their endpoint
	stray []claim   // open attempts of endpoints that are gone
}

// survey looks up every sample. The error is the one of the task source; what was read
// before it counts.
func (f *feed) survey(ctx context.Context) (*survey, error) {
	c := f.c
	s := &survey{open: make([][]claim, len(c.endpoints))}
	first, group, begun := 0, "", false // the present group: its first sample, and whether it was begun
	closeGroup := func() {
		for i := first; begun && i < len(s.dues); i++ {
			if s.dues[i] == dueRest {
				s.dues[i] = dueBegun
			}
		}
		first, begun = len(s.dues), false
	}
	err := f.samples(func(n int, cl claim) bool {
		if cl.group != group {
			closeGroup()
			group = cl.group
		}
		left := c.cfg.Left(cl.key)
		begun = begun || left.Done || left.Failed != ClassNone || left.Attempts > 0
		d := dueRest
		switch {
		case !c.counters.survey(n+1, &left, c.cfg.RetryFailed):
			d = dueNever
		case left.Open != nil:
			d = dueNever
			cl.resume(&left)
			if i := c.endpoint(left.Open.Endpoint); i >= 0 {
				s.open[i] = append(s.open[i], cl)
			} else {
				s.stray = append(s.stray, cl)
			}
		}
		s.dues = append(s.dues, d)
		return !c.stopping(ctx) // a long list need not be read to its end
	})
	closeGroup()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return s, err
}

// some sends the samples that are due now.
func (f *feed) some(ctx context.Context, dues []due, now due) (err error) {
	last := -1
	for n := range dues {
		if dues[n] == now {
			last = n
		}
	}
	if last < 0 {
		return nil
	}
	sourceErr := f.samples(func(n int, cl claim) (ok bool) {
		if n > last {
			return false
		}
		if dues[n] != now {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return !f.c.stopping(ctx)
		}
		left := f.c.cfg.Left(cl.key)
		cl.resume(&left)
		ok, err = f.send(ctx, cl)
		return ok
	})
	if err != nil {
		return err
	}
	return sourceErr
}

// send gives the claim to a worker of any endpoint. It returns false if nothing more is to be
// sent.
func (f *feed) send(ctx context.Context, cl claim) (bool, error) {
	cl.queued = time.Now()
	f.open.Add(1)
	select {
	case f.work <- cl:
		return true, nil
	case <-f.c.drain:
		f.open.Done()
		return false, nil
	case <-ctx.Done():
		f.open.Done()
		return false, context.Cause(ctx)
	}
}

// pin gives the claims to workers of their endpoint, and to workers of any other if the
// endpoint is lost. Until it closes ep.pinned, the workers of the endpoint take nothing else.
func (f *feed) pin(ctx context.Context, ep *endpoint, claims []claim) {
	rest := f.sendBound(ctx, ep, claims)
	close(ep.pinned)
	for _, cl := range rest {
		if ok, _ := f.send(ctx, cl); !ok {
			return // the other half of the feed has the error
		}
	}
}

// sendBound returns the claims that are left when the endpoint is lost. What a drain or a
// stop leaves is not returned: it is for the next process.
func (f *feed) sendBound(ctx context.Context, ep *endpoint, claims []claim) []claim {
	for i := range claims {
		f.open.Add(1)
		claims[i].queued = time.Now()
		select {
		case ep.pinned <- claims[i]:
			continue
		case <-ep.lost:
			f.open.Done()
			return claims[i:]
		case <-ep.overdue.raised().Done():
			f.open.Done()
			return claims[i:]
		case <-f.c.drain:
		case <-ctx.Done():
		}
		f.open.Done()
		return nil
	}
	return nil
}
