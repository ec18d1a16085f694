package collector

import (
	"context"
	"fmt"
	"iter"
	"sync"
)

// A feed sends the samples of the tasks to the workers.
//
// If Config.Left is nil, it reads the tasks once and sends their samples in order. Otherwise it
// reads the tasks up to three times. This way, open attempts and groups that were begun finish
// first, and no list of all samples is kept in memory:
//
//	1  survey   look up every sample, and count the samples in the dataset
//	            → send open attempts, each to the endpoint where it was made
//	2  begun    send the remaining samples of groups that earlier processes began
//	3  rest     send the groups that no process began
//
// The feed keeps one byte per sample in memory, and the claims of the open attempts. There are at
// most as many open attempts as an earlier process had samples in flight. With Config.More, the
// samples of the passes after the survey go through a backlog.
type feed struct {
	c         *Collector
	tasks     iter.Seq2[*Task, error]
	unsettled *sync.WaitGroup // counts the claims that are in a channel or held by a worker

	read  int    // number of samples read so far
	group string // group of the last sample that was sent
}

// A due identifies the pass in which a sample is sent.
type due uint8

const (
	dueNever due = iota // done, not requested, or an open attempt
	dueBegun            // in the pass for groups that were begun
	dueRest
)

// A sender handles the next sample. It returns false if no more samples are needed.
type sender func(ctx context.Context, cl claim) (bool, error)

// run sends every sample that is due, and returns when the last claim has been taken. It returns an
// error from the task source, or the reason why the run stops.
func (f *feed) run(ctx context.Context) error {
	s, err := f.resume(ctx)
	switch {
	case err != nil || s == nil:
		return err
	case f.c.cfg.More == nil:
		err = f.sendKnown(ctx, s, f.send)
	default:
		err = f.stream(ctx, s)
	}
	s.sending.Wait()
	return err
}

// resume makes the survey and starts sending the open attempts. If it returns a nil survey, no more
// samples are sent.
func (f *feed) resume(ctx context.Context) (*survey, error) {
	if f.c.cfg.Left == nil {
		for _, ep := range f.c.endpoints {
			close(ep.open)
		}
		return &survey{}, nil
	}
	s := f.survey(ctx)
	done := f.c.Stats().Earlier.Committed // includes filtered samples and samples that are not yet in a shard
	filtered := min(f.c.cfg.Filtered, done)
	f.c.counters.addEarlier(-min(filtered+f.c.cfg.Waiting, done), filtered)
	if n := f.c.Stats().Earlier.Committed; n > 0 {
		f.c.addSucceeded(n)
		f.c.earlyFailures.gaveRow()
	}
	for i, ep := range f.c.endpoints {
		s.sending.Go(func() { f.sendOpen(ctx, ep, s.open[i]) })
	}
	for _, cl := range s.stray {
		if ok, err := f.send(ctx, cl); !ok {
			s.sending.Wait()
			return nil, err
		}
	}
	return s, nil
}

func (f *feed) sendKnown(ctx context.Context, s *survey, send sender) error {
	if f.c.cfg.Left == nil {
		return f.sendAll(ctx, send)
	}
	for _, d := range []due{dueBegun, dueRest} {
		if err := f.sendDue(ctx, s.dues, d, send); err != nil {
			return err
		}
	}
	f.read = len(s.dues)
	return s.err
}

// This method calls do for each sample of the tasks, in order. It stops when do returns false or
// Config.Limit is reached. The parameter from is the number of the first sample. Any error comes
// from the task source.
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
		group, cut := GroupID(t), c.newCutoff(t)
		for i := range size {
			if n == c.limited(n+1) {
				return nil
			}
			if !do(n, claim{sample: sample{task: t, group: group, key: sampleKey(group, i), index: i, groupSize: size, cut: cut}}) {
				return nil
			}
			n++
		}
	}
	return nil
}

// sendAll calls send for each sample of the tasks that earlier processes have not finished.
func (f *feed) sendAll(ctx context.Context, send sender) (err error) {
	sourceErr := f.samples(f.read, func(n int, cl claim) (ok bool) {
		f.read = n + 1
		if f.c.cfg.Left == nil {
			f.c.counters.planned(f.read)
		} else {
			left := f.c.cfg.Left(cl.key)
			if !f.c.counters.survey(f.read, &left, f.c.cfg.RetryFailed) {
				return ctx.Err() == nil
			}
			cl.failed, cl.retry = left.Failed, resumed(&left)
		}
		ok, err = send(ctx, cl)
		return ok
	})
	if err != nil {
		return err
	}
	return sourceErr
}

// A survey is the result of the first pass over the tasks.
type survey struct {
	dues  []due     // indexed by the number of the sample
	open  [][]claim // open attempts, by the index of their endpoint
	stray []claim   // open attempts made at endpoints that this run does not have
	err   error     // error from the task source; the tasks read before it are still collected

	sending sync.WaitGroup // waits for the goroutines that send the open attempts
}

func (f *feed) survey(ctx context.Context) *survey {
	c := f.c
	s := &survey{open: make([][]claim, len(c.endpoints))}
	first, group, begun, needsMore := 0, "", false, false // state of the current group; first is the number of its first sample
	closeGroup := func() {
		for i := first; begun && i < len(s.dues); i++ {
			if s.dues[i] == dueRest {
				s.dues[i], needsMore = dueBegun, true
			}
		}
		if needsMore && c.cfg.Pace != nil {
			c.cfg.Pace.Resumed(group)
		}
		first, begun, needsMore = len(s.dues), false, false
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
			d, needsMore = dueNever, true
			cl.failed, cl.retry = left.Failed, resumed(&left)
			if i := c.endpoint(left.Open.Endpoint); i >= 0 {
				s.open[i] = append(s.open[i], cl)
			} else {
				s.stray = append(s.stray, cl)
			}
		}
		s.dues = append(s.dues, d)
		return !c.stopping(ctx) // after a stop, do not read the rest of a long list
	})
	closeGroup()
	if ctx.Err() != nil {
		s.err = context.Cause(ctx)
	}
	return s
}

// sendDue calls send for each sample that is due in the given pass.
func (f *feed) sendDue(ctx context.Context, dues []due, now due, send sender) (err error) {
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
		cl.failed, cl.retry, cl.begun = left.Failed, resumed(&left), now == dueBegun
		ok, err = send(ctx, cl)
		return ok
	})
	if err != nil {
		return err
	}
	return sourceErr
}
