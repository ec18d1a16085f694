package collector

import (
	"context"
	"errors"
	"time"
)

// give sends the sample to a worker of any endpoint when it may begin, or cuts it if its
// deadline is over before. It returns false if nothing more is to be sent.
func (f *feed) give(ctx context.Context, cl claim) (bool, error) {
	for {
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case f.c.stopping(ctx):
			return false, nil
		case f.c.late(&cl) != nil:
			return true, f.cut(ctx, &cl)
		}
		leave, ok, err := f.leave(ctx, &cl)
		if err != nil {
			continue // the switch knows why
		}
		if !ok {
			return false, nil
		}
		if f.offer(ctx, cl, leave) {
			if cl.left == nil { // else pin may be here too
				f.group = cl.group
			}
			return true, nil
		}
		if f.fresh(&cl) {
			f.c.cfg.Pace.Back(cl.group)
		}
	}
}

// fresh reports whether the sample is the first of its group that begins, so that the pacer
// is asked for the group.
func (f *feed) fresh(cl *claim) bool {
	return f.c.cfg.Pace != nil && cl.left == nil && !cl.begun && cl.group != f.group
}

// leave waits until the pacer lets the sample begin. An open attempt has begun. ok is false
// if no further group is needed.
func (f *feed) leave(ctx context.Context, cl *claim) (leave <-chan struct{}, ok bool, err error) {
	if f.c.cfg.Pace == nil || cl.left != nil {
		return nil, true, nil
	}
	ctx, stop := f.c.untilDeadline(ctx, cl.task)
	defer stop()
	ctx, drained := context.WithCancelCause(ctx)
	defer drained(nil)
	defer context.AfterFunc(f.c.drained, func() { drained(errDrained) })()
	if f.fresh(cl) {
		return f.c.cfg.Pace.Group(ctx, cl.group)
	}
	leave, err = f.c.cfg.Pace.Sample(ctx)
	return leave, true, err
}

// errDrained ends a wait for the pacer.
var errDrained = errors.New("collector: drained")

// offer waits until a worker takes the sample, one of the endpoint whose turn it is. It
// returns false if none took it before the deadline, a drain or a stop, or before leave was
// closed.
func (f *feed) offer(ctx context.Context, cl claim, leave <-chan struct{}) bool {
	late, stop := f.c.untilDeadline(ctx, cl.task)
	defer stop()
	cl.queued = time.Now()
	f.open.Add(1)
	for {
		at, changed := f.c.shares.next()
		var work chan<- claim
		if at >= 0 {
			work = f.c.endpoints[at].work
		}
		select {
		case work <- cl:
			f.c.shares.took(at)
			return true
		case <-changed:
			continue
		case <-leave:
		case <-f.c.drain:
		case <-late.Done():
		}
		f.open.Done()
		return false
	}
}

// cut gives a sample that no worker had to the sink, as one that was cut at its deadline.
func (f *feed) cut(ctx context.Context, cl *claim) error {
	w := worker{c: f.c, ep: f.c.endpoints[0]}
	return w.censor(ctx, cl, true, &deadlineError{f.c.deadline(cl.task)})
}

// pin gives the claims to workers of their endpoint, and to workers of any other if the
// endpoint is lost. Until it closes ep.pinned, the workers of the endpoint take nothing else.
func (f *feed) pin(ctx context.Context, ep *endpoint, claims []claim) {
	rest := f.sendBound(ctx, ep, claims)
	close(ep.pinned)
	for _, cl := range rest {
		if ok, err := f.give(ctx, cl); !ok {
			f.end(err)
			return
		}
	}
}

// sendBound returns the claims that are left when the endpoint is lost. What a drain or a
// stop leaves is not returned: it is for the next process.
func (f *feed) sendBound(ctx context.Context, ep *endpoint, claims []claim) []claim {
	for i := range claims {
		late, stop := f.c.untilDeadline(ctx, claims[i].task)
		defer stop() // these are few
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
		case <-late.Done():
		}
		f.open.Done()
		if f.c.stopping(ctx) {
			return nil
		}
		f.end(f.cut(ctx, &claims[i]))
	}
	return nil
}

// end ends the run with err, unless that is nil.
func (f *feed) end(err error) {
	if err != nil {
		(*f.c.stop.Load())(err)
	}
}
