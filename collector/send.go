package collector

import (
	"context"
	"errors"
	"time"
)

// send waits until the sample can start and then passes the sample to a worker of any endpoint. If
// the sample is cut while it waits, send appends the sample as cut. It returns false if no more
// samples can be sent.
func (f *feed) send(ctx context.Context, cl claim) (bool, error) {
	for {
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case f.c.stopping(ctx):
			return false, nil
		case cl.cut.cause() != nil:
			return true, f.c.censor(ctx, &cl)
		}
		leave, ok, err := f.admit(ctx, &cl)
		if err != nil {
			continue // the switch above returns the reason
		}
		if !ok {
			return false, nil
		}
		if f.dispatch(ctx, cl, leave) {
			if cl.retry.open == nil { // for open attempts, sendOpen can call send concurrently
				f.group = cl.group
			}
			return true, nil
		}
		if f.beginsGroup(&cl) {
			f.c.cfg.Pace.Cancel(cl.group)
		}
	}
}

// beginsGroup reports whether the sample begins its group, so that the pacer must admit the group.
func (f *feed) beginsGroup(cl *claim) bool {
	return f.c.cfg.Pace != nil && cl.retry.open == nil && !cl.begun && cl.group != f.group
}

// admit waits until the pacer admits the sample. The result ok is false if no more groups are
// needed. The channel leave is closed when the pacer's decision can change.
func (f *feed) admit(ctx context.Context, cl *claim) (leave <-chan struct{}, ok bool, err error) {
	if f.c.cfg.Pace == nil || cl.retry.open != nil {
		return nil, true, nil
	}
	ctx, stop := cl.cut.context(ctx)
	defer stop()
	ctx, drained := context.WithCancelCause(ctx)
	defer drained(nil)
	defer context.AfterFunc(f.c.drained, func() { drained(errDrained) })()
	if f.beginsGroup(cl) {
		return f.c.cfg.Pace.Group(ctx, cl.group)
	}
	leave, err = f.c.cfg.Pace.Sample(ctx)
	return leave, true, err
}

var errDrained = errors.New("collector: drained")

// dispatch waits until a worker of the next endpoint takes the sample. It returns false if the
// sample is cut, the run is drained or stopped, or the channel leave is closed first.
func (f *feed) dispatch(ctx context.Context, cl claim, leave <-chan struct{}) bool {
	until, stop := cl.cut.context(ctx)
	defer stop()
	cl.place.queuedAt = time.Now()
	f.unsettled.Add(1)
	for {
		at, changed := f.c.shares.next()
		var fresh chan<- claim
		if at >= 0 {
			fresh = f.c.endpoints[at].fresh
		}
		select {
		case fresh <- cl:
			f.c.shares.assign(at)
			return true
		case <-changed:
			continue
		case <-leave:
		case <-f.c.drain:
		case <-until.Done():
		}
		f.unsettled.Done()
		return false
	}
}

// sendOpen sends open attempts to workers of the endpoint that the attempts belong to. If this
// endpoint is lost or overdue, sendOpen sends the attempts to workers of any endpoint. Until
// sendOpen closes ep.open, the workers of the endpoint do not take other samples.
func (f *feed) sendOpen(ctx context.Context, ep *endpoint, claims []claim) {
	rest := f.sendOpenTo(ctx, ep, claims)
	close(ep.open)
	for _, cl := range rest {
		if ok, err := f.send(ctx, cl); !ok {
			f.c.end(err)
			return
		}
	}
}

// sendOpenTo sends the claims to workers of ep. If the endpoint is lost or overdue, it returns the
// remaining claims. If the run is drained or stopped, it returns nil, because the next process
// takes over the remaining attempts.
func (f *feed) sendOpenTo(ctx context.Context, ep *endpoint, claims []claim) []claim {
	for i := range claims {
		cl := &claims[i]
		sent, ok := f.sendOneTo(ctx, ep, cl)
		switch {
		case sent:
		case !ok:
			return claims[i:]
		case f.c.stopping(ctx):
			return nil
		default:
			f.c.end(f.c.censor(ctx, cl))
		}
	}
	return nil
}

// sendOneTo sends one open attempt. The result ok is false if the endpoint is lost or overdue.
func (f *feed) sendOneTo(ctx context.Context, ep *endpoint, cl *claim) (sent, ok bool) {
	until, stop := cl.cut.context(ctx)
	defer stop()
	f.unsettled.Add(1)
	cl.place.queuedAt = time.Now()
	select {
	case ep.open <- *cl:
		return true, true
	case <-ep.lost:
	case <-ep.overdue.raised().Done():
	case <-f.c.drain:
		ok = true
	case <-until.Done():
		ok = true
	}
	f.unsettled.Done()
	return false, ok
}
