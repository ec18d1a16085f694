package collector

import (
	"context"
	"errors"
	"time"
)

// give sends the sample to a worker of any endpoint when it can begin, or cuts it at its deadline.
// It returns false if no more samples must be sent.
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
			continue // the switch returns the reason
		}
		if !ok {
			return false, nil
		}
		if f.offer(ctx, cl, leave) {
			if cl.left == nil { // pin can call give concurrently, for open attempts
				f.group = cl.group
			}
			return true, nil
		}
		if f.fresh(&cl) {
			f.c.cfg.Pace.Back(cl.group)
		}
	}
}

// fresh reports whether the sample begins its group, so that the pacer must admit the group.
func (f *feed) fresh(cl *claim) bool {
	return f.c.cfg.Pace != nil && cl.left == nil && !cl.begun && cl.group != f.group
}

// leave waits until the pacer admits the sample. ok is false if no more groups are needed.
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

var errDrained = errors.New("collector: drained")

// offer waits until a worker of the next endpoint takes the sample. It returns false after the
// deadline, a drain, a stop or the close of leave.
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

// cut appends a sample that no worker had to the sink, as cut at its deadline.
func (f *feed) cut(ctx context.Context, cl *claim) error {
	w := worker{c: f.c, ep: f.c.endpoints[0]}
	return w.censor(ctx, cl, true, &deadlineError{f.c.deadline(cl.task)})
}

// pin sends the claims to workers of their endpoint, or to any workers if the endpoint is lost.
// Until it closes ep.pinned, the workers of the endpoint take no other samples.
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

// sendBound returns the remaining claims when the endpoint is lost or overdue. After a drain or a
// stop it returns nil: the next process takes the rest.
func (f *feed) sendBound(ctx context.Context, ep *endpoint, claims []claim) []claim {
	for i := range claims {
		late, stop := f.c.untilDeadline(ctx, claims[i].task)
		defer stop() // there are few
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

func (f *feed) end(err error) {
	if err != nil {
		(*f.c.stop.Load())(err)
	}
}
