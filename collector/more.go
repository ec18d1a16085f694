package collector

import (
	"container/list"
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// A backlog holds the samples that were read and not begun, in order. Three goroutines share
// it, and end when the last sample was taken, or nothing more is to begin:
//
//	read   puts samples in, of the known tasks and then of Config.More
//	send   takes the first, and gives it to a worker when it may begin
//	cut    takes those whose deadline comes before
//
// A sample is taken once, by whoever comes first.
type backlog struct {
	f *feed

	mu    sync.Mutex
	list  list.List // of *waiting, in order
	late  []claim   // taken by a deadline, to be cut
	bytes int       // of the list
	known bool      // the known tasks were read
	part  bool      // samples of the last group are still to be put in
	ended bool      // read has returned
	err   error     // of the task source

	closed bool // send has returned: nothing is put in or taken any more

	// Each is signalled when something changed for its one receiver; one place is enough,
	// because the receiver looks at everything.
	put, taken, due chan struct{}
}

// A waiting is a sample in the backlog.
type waiting struct {
	claim
	bytes int
	timer *time.Timer   // fires at the deadline; nil: none
	at    *list.Element // in the list; nil: it was taken
}

// backlogBytes bounds the tasks that wait; one is always read. claimBytes is about what a
// waiting sample takes besides its task.
const (
	backlogBytes = 64 << 20
	claimBytes   = 512
)

func newBacklog(f *feed) *backlog {
	return &backlog{f: f, put: make(chan struct{}, 1), taken: make(chan struct{}, 1), due: make(chan struct{}, 1)}
}

// coming sends the samples of the known tasks and of those that come, and returns when the
// last was taken. s is nil if no earlier process left anything.
func (f *feed) coming(ctx context.Context, s *survey) error {
	b := newBacklog(f)
	g, ctx := errgroup.WithContext(ctx)
	reading, stop := context.WithCancel(ctx)
	g.Go(func() error {
		b.read(reading, s)
		return nil
	})
	g.Go(func() error {
		defer b.close()
		defer stop()
		return b.send(ctx)
	})
	g.Go(func() error { return b.cut(ctx) })
	return g.Wait()
}

// read puts every sample in.
func (b *backlog) read(ctx context.Context, s *survey) {
	err := b.f.known(ctx, s, b.add)
	if err == nil && ctx.Err() == nil {
		b.mu.Lock()
		b.known = true
		b.mu.Unlock()
		signal(b.put)
		b.f.tasks = b.f.c.cfg.More(ctx)
		err = b.f.all(ctx, b.add)
	}
	if ctx.Err() != nil {
		err = nil // whoever stopped it knows why
	}
	b.mu.Lock()
	b.ended, b.err = true, err
	b.mu.Unlock()
	signal(b.put)
}

// add puts the sample in when there is room. It returns false if nothing more is to be read.
// After close it puts nothing in.
func (b *backlog) add(ctx context.Context, cl claim) (bool, error) {
	w := &waiting{claim: cl, bytes: claimBytes}
	if cl.index == 0 {
		w.bytes += cl.task.bytes()
	}
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return false, nil
		}
		room := b.bytes == 0 || b.bytes+w.bytes <= backlogBytes
		if room {
			b.bytes += w.bytes
			w.at = b.list.PushBack(w)
			b.part = cl.index < cl.groupSize-1
			if at := b.f.c.deadline(cl.task); !at.IsZero() {
				w.timer = time.AfterFunc(time.Until(at), func() { b.expire(w) })
			}
		}
		b.mu.Unlock()
		if room {
			signal(b.put)
			return ctx.Err() == nil, nil
		}
		select {
		case <-b.taken:
		case <-ctx.Done():
			return false, nil
		}
	}
}

// expire takes the sample for cut, unless it is taken.
func (b *backlog) expire(w *waiting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.at != nil { // so the backlog is not closed, nor is due
		b.take(w)
		b.late = append(b.late, w.claim)
		signal(b.due)
	}
}

// take takes the sample out.
func (b *backlog) take(w *waiting) {
	b.list.Remove(w.at)
	w.at = nil
	b.bytes -= w.bytes
	if w.timer != nil {
		w.timer.Stop()
	}
	signal(b.taken)
}

// send gives one sample after the other to workers.
func (b *backlog) send(ctx context.Context) error {
	for {
		cl, ok, err := b.next(ctx)
		if !ok {
			return err
		}
		if ok, err := b.f.give(ctx, cl); !ok {
			return err
		}
	}
}

// next waits for the first sample and takes it. ok is false if none comes, or if no further
// one is needed.
func (b *backlog) next(ctx context.Context) (cl claim, ok bool, err error) {
	for {
		b.mu.Lock()
		if w := b.first(); w != nil {
			b.take(w)
			b.mu.Unlock()
			return w.claim, true, nil
		}
		ended, err := b.ended, b.err
		var enough <-chan struct{}
		if b.known && !b.part && b.f.c.cfg.Pace != nil { // else more is coming of what was begun
			enough = b.f.c.cfg.Pace.Enough()
		}
		b.mu.Unlock()
		if ended {
			return claim{}, false, err
		}
		select {
		case <-b.put:
		case <-enough:
			return claim{}, false, nil
		case <-b.f.c.drain:
			return claim{}, false, nil
		case <-ctx.Done():
			return claim{}, false, context.Cause(ctx)
		}
	}
}

// first returns the first sample; nil: there is none.
func (b *backlog) first() *waiting {
	if at := b.list.Front(); at != nil {
		return at.Value.(*waiting) //nolint:forcetypeassert // the list has nothing else
	}
	return nil
}

// close ends cut when it has cut what is late now. What is left in the backlog remains.
func (b *backlog) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := b.first(); w != nil; w = b.first() {
		b.take(w)
	}
	b.closed = true
	close(b.due)
}

// cut cuts the samples whose deadline is over.
func (b *backlog) cut(ctx context.Context) error {
	for open := true; open; {
		select {
		case _, open = <-b.due:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		b.mu.Lock()
		late := b.late
		b.late = nil
		b.mu.Unlock()
		for i := range late {
			if err := b.f.cut(ctx, &late[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// signal sends without waiting.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
