package collector

import (
	"context"
	"fmt"
	"iter"
	"sync"
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
// many as an earlier process had in flight. If tasks come while the run goes on, what follows
// the survey goes through a backlog.
type feed struct {
	c     *Collector
	tasks iter.Seq2[*Task, error]
	open  *sync.WaitGroup // counts the claims on their way or in hands

	read  int    // how many samples were read
	group string // the last group of which a sample was sent
}

// A due is when a sample is to be sent. The survey keeps one for each sample.
type due uint8

const (
	dueNever due = iota // done, not asked for, or an open attempt
	dueBegun            // with the groups that were begun
	dueRest
)

// A giver does something with the next sample, in order. It returns false if no further one
// is wanted.
type giver func(ctx context.Context, cl claim) (bool, error)

// run sends every sample that is to be sent, and returns when the last claim was taken. The
// error is the one of the task source, or the reason why the run stops.
func (f *feed) run(ctx context.Context) error {
	s, err := f.begin(ctx)
	switch {
	case err != nil || s == nil:
		return err
	case f.c.cfg.More == nil:
		err = f.known(ctx, s, f.give)
	default:
		err = f.coming(ctx, s)
	}
	s.pinned.Wait()
	return err
}

// begin finds out what earlier processes left, and sends the open attempts. It returns nil if
// nothing more is to be sent.
func (f *feed) begin(ctx context.Context) (*survey, error) {
	if f.c.cfg.Left == nil {
		for _, ep := range f.c.endpoints {
			close(ep.pinned)
		}
		return &survey{}, nil
	}
	s := f.survey(ctx)
	f.c.counters.filteredEarlier(f.c.cfg.Filtered)
	f.c.counters.waitingEarlier(f.c.cfg.Waiting)
	if n := f.c.Stats().Earlier.Committed; n > 0 {
		f.c.wellDone(n)
		f.c.barren.gaveRow()
	}
	for i, ep := range f.c.endpoints {
		s.pinned.Go(func() { f.pin(ctx, ep, s.open[i]) })
	}
	for _, cl := range s.stray {
		if ok, err := f.give(ctx, cl); !ok {
			s.pinned.Wait()
			return nil, err
		}
	}
	return s, nil
}

// known gives the samples of the known tasks.
func (f *feed) known(ctx context.Context, s *survey, give giver) error {
	if f.c.cfg.Left == nil {
		return f.all(ctx, give)
	}
	for _, d := range []due{dueBegun, dueRest} {
		if err := f.some(ctx, s.dues, d, give); err != nil {
			return err
		}
	}
	f.read = len(s.dues)
	return s.err
}

// samples calls do with the samples of the tasks in order, the first of which is number
// from, up to Limit, until do returns false. It returns the error of the task source.
func (f *feed) samples(from int, do func(n int, cl claim) bool) error {
	c, n := f.c, from
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

// all gives every sample.
func (f *feed) all(ctx context.Context, give giver) (err error) {
	sourceErr := f.samples(f.read, func(n int, cl claim) (ok bool) {
		f.read = n + 1
		f.c.counters.planned(f.read)
		ok, err = give(ctx, cl)
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
	err   error     // of the task source; what was read before it counts

	pinned sync.WaitGroup // sends the open attempts
}

// survey looks up every sample.
func (f *feed) survey(ctx context.Context) *survey {
	c := f.c
	s := &survey{open: make([][]claim, len(c.endpoints))}
	first, group, begun, part := 0, "", false, false // the present group: its first sample, whether it was begun, and is not whole
	closeGroup := func() {
		for i := first; begun && i < len(s.dues); i++ {
			if s.dues[i] == dueRest {
				s.dues[i], part = dueBegun, true
			}
		}
		if part && c.cfg.Pace != nil {
			c.cfg.Pace.Began(group)
		}
		first, begun, part = len(s.dues), false, false
	}
	s.err = f.samples(0, func(n int, cl claim) bool {
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
			d, part = dueNever, true
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
		s.err = context.Cause(ctx)
	}
	return s
}

// some gives the samples that are due now.
func (f *feed) some(ctx context.Context, dues []due, now due, give giver) (err error) {
	last := -1
	for n := range dues {
		if dues[n] == now {
			last = n
		}
	}
	if last < 0 {
		return nil
	}
	sourceErr := f.samples(0, func(n int, cl claim) (ok bool) {
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
		cl.begun = now == dueBegun
		ok, err = give(ctx, cl)
		return ok
	})
	if err != nil {
		return err
	}
	return sourceErr
}
