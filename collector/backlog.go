package collector

import (
	"container/list"
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// A backlog holds, in order, the samples that have been read but not begun. Three goroutines share
// it until the last sample has been taken or no more samples can begin. Each sample is taken once,
// either by send or by cut:
//
//	read   adds the samples of the tasks passed to Run, and then the samples of Config.More
//	send   takes the first sample and sends it to a worker when the sample can begin
//	cut    cuts samples whose deadline passes before send takes them
type backlog struct {
	f *feed

	mu        sync.Mutex
	list      list.List // of *entry
	late      []claim   // taken at their deadline, to be cut
	bytes     int       // total size of the samples in the list
	known     bool      // the tasks passed to Run have been read
	groupOpen bool      // the last group still lacks samples
	ended     bool      // read has returned
	err       error     // error from the task source

	closed bool // send has returned, and the list stays empty

	// Each channel signals changes to one receiver, which then checks all state. So a buffer size
	// of one is enough.
	put, taken, lateSignal chan struct{}
}

// An entry is a sample in the backlog.
type entry struct {
	claim
	bytes int
	timer *time.Timer   // fires at the deadline; nil: no deadline
	at    *list.Element // position in the list; nil after the sample was taken
}

// backlogBytes bounds the total size of the samples in the backlog, but at least one sample always
// fits. claimBytes is the approximate size of a sample without its task.
const (
	backlogBytes = 64 << 20
	claimBytes   = 512
)

func newBacklog(f *feed) *backlog {
	return &backlog{f: f, put: make(chan struct{}, 1), taken: make(chan struct{}, 1), lateSignal: make(chan struct{}, 1)}
}

// stream sends the samples of the tasks passed to Run, and then the samples of Config.More. It
// returns when the last sample has been taken.
func (f *feed) stream(ctx context.Context, s *survey) error {
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

func (b *backlog) read(ctx context.Context, s *survey) {
	err := b.f.sendKnown(ctx, s, b.add)
	if err == nil && ctx.Err() == nil {
		b.mu.Lock()
		b.known = true
		b.mu.Unlock()
		signal(b.put)
		b.f.tasks = b.f.c.cfg.More(ctx)
		err = b.f.sendAll(ctx, b.add)
	}
	if ctx.Err() != nil {
		err = nil // read was stopped by another goroutine, which returns the reason
	}
	b.mu.Lock()
	b.ended, b.err = true, err
	b.mu.Unlock()
	signal(b.put)
}

// add appends the sample to the list once backlogBytes allows it. It returns false if the backlog
// needs no more samples.
func (b *backlog) add(ctx context.Context, cl claim) (bool, error) {
	w := &entry{claim: cl, bytes: claimBytes}
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
			b.groupOpen = cl.index < cl.groupSize-1
			if at := cl.cut.deadline; !at.IsZero() {
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

// expire hands the sample over to cut. It does nothing if the sample has already been taken.
func (b *backlog) expire(w *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.at != nil { // the sample is still in the list, so lateSignal is not closed
		b.remove(w)
		b.late = append(b.late, w.claim)
		signal(b.lateSignal)
	}
}

func (b *backlog) remove(w *entry) {
	b.list.Remove(w.at)
	w.at = nil
	b.bytes -= w.bytes
	if w.timer != nil {
		w.timer.Stop()
	}
	signal(b.taken)
}

func (b *backlog) send(ctx context.Context) error {
	for {
		cl, ok, err := b.next(ctx)
		if !ok {
			return err
		}
		if ok, err := b.f.send(ctx, cl); !ok {
			return err
		}
	}
}

// next waits until the list has a sample, and removes the first sample. ok is false if there are no
// more samples, no more samples are needed, the run is draining, or ctx is done.
func (b *backlog) next(ctx context.Context) (cl claim, ok bool, err error) {
	for {
		b.mu.Lock()
		if w := b.first(); w != nil {
			b.remove(w)
			b.mu.Unlock()
			return w.claim, true, nil
		}
		ended, err := b.ended, b.err
		var enough <-chan struct{}
		if b.known && !b.groupOpen && b.f.c.cfg.Pace != nil { // otherwise, the list can still get samples of a group that was begun
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

func (b *backlog) first() *entry {
	if at := b.list.Front(); at != nil {
		return at.Value.(*entry) //nolint:forcetypeassert // the list contains nothing else
	}
	return nil
}

// close empties the list and lets cut finish. The dropped samples stay unfinished.
func (b *backlog) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := b.first(); w != nil; w = b.first() {
		b.remove(w)
	}
	b.closed = true
	close(b.lateSignal)
}

func (b *backlog) cut(ctx context.Context) error {
	for open := true; open; {
		select {
		case _, open = <-b.lateSignal:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		b.mu.Lock()
		late := b.late
		b.late = nil
		b.mu.Unlock()
		for i := range late {
			if err := b.f.c.censor(ctx, &late[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// signal sends without blocking.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
