package tap

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rollout-rl/rollout/sink/frame"
)

// A writer writes the calls of a Spool to segments. It runs in one goroutine, and each sync runs in
// another goroutine.
type writer struct {
	spool *Spool
	cfg   SpoolConfig

	process uint64        // the start time of this process, in nanoseconds since 1970
	number  uint64        // number of the newest segment
	last    uint64        // number of the newest ended segment that fail has not removed
	file    *os.File      // the open segment, or nil
	frames  *frame.Writer // writes to file
	enc     encoder
	head    int64 // offset of the open segment's first call
	whole   int64 // offset of the end of the last whole frame
	told    int64 // number of dropped calls that have been reported to readers
	before  int64 // the value of told when the open segment began

	begun    time.Time // when the open segment began
	called   time.Time // when a call was last written
	ticked   time.Time // when the last tick was written
	syncedAt time.Time // when the last sync began
	cleaned  time.Time
	retry    time.Time // after an error, do not write before this time

	dirty   bool // bytes have been written since the last sync began
	syncing bool // a sync is running; synced will receive its result
	synced  chan syncResult
}

type syncResult struct {
	file *os.File
	size int64 // the size of the file when the sync began
	err  error
}

// These are the writer's intervals. tickOften and tickSoon count from the time of the last written
// call.
const (
	tickEvery  = 25 * time.Millisecond // tick interval until tickOften
	tickOften  = time.Second           // from this time on, the tick interval is tickLess
	tickLess   = 200 * time.Millisecond
	tickSoon   = 10 * time.Second // from this time on, the tick interval is tickSeldom
	tickSeldom = time.Second
	retryEvery = time.Second // pause after an error
	cleanEvery = 10 * time.Second
	maxOpen    = time.Hour // maximum time that a segment stays open (MaxAge/8 if that is less)
)

func (w *writer) run() {
	defer close(w.spool.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.spool.wake:
		case r := <-w.synced:
			w.syncEnded(r)
		case <-timer.C:
		}
		closed := w.isClosed()
		if now := time.Now(); closed || !now.Before(w.retry) {
			w.drain()
		}
		if closed {
			w.finish(true)
			return
		}
		timer.Reset(w.rest(time.Now()))
	}
}

// rest performs all actions that are due, and returns the time until the next action is due.
func (w *writer) rest(now time.Time) time.Duration {
	next := cleanEvery
	due := func(at time.Time) bool {
		next = min(next, max(at.Sub(now), time.Millisecond))
		return !now.Before(at)
	}
	if w.file != nil && now.Sub(w.begun) > w.maxOpen() {
		w.finish(false)
	}
	if due(w.ticked.Add(w.tickEvery(now))) {
		w.ticked = now
		w.tick()
	}
	if w.dirty && !w.syncing && w.file != nil && due(w.syncedAt.Add(w.cfg.SyncEvery)) {
		w.sync(now)
	}
	if due(w.cleaned.Add(cleanEvery)) {
		w.clean()
	}
	if w.retry.After(now) {
		due(w.retry)
	}
	return next
}

// tickEvery returns the current interval between ticks. The interval is short after a call, because
// a Reader is then probably waiting for a tick.
func (w *writer) tickEvery(now time.Time) time.Duration {
	switch quiet := now.Sub(w.called); {
	case quiet < tickOften:
		return tickEvery
	case quiet < tickSoon:
		return tickLess
	default:
		return tickSeldom
	}
}

func (w *writer) maxOpen() time.Duration { return min(maxOpen, w.cfg.MaxAge/8) }

func (w *writer) isClosed() bool {
	s := w.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// drain writes the queued calls. After an error, the remaining calls stay in the queue unless the
// spool has been closed. In that case, these calls are lost.
func (w *writer) drain() {
	s := w.spool
	s.mu.Lock()
	batch := s.queue
	s.queue = nil
	s.mu.Unlock()
	for i, e := range batch {
		batch[i] = nil
		err := w.write(e)
		if err == nil {
			continue
		}
		w.fail(err)
		if errors.Is(err, errPanic) {
			w.lose(e)
			continue
		}
		batch[i] = e
		s.mu.Lock()
		s.queue = append(batch[i:], s.queue...)
		closed := s.closed
		s.mu.Unlock()
		if closed {
			w.lose(s.queue...)
		}
		return
	}
	if len(batch) > 0 {
		w.called = time.Now()
		w.announce()
	}
}

func (w *writer) lose(entries ...*entry) {
	s := w.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		s.bytes -= e.size
		s.stats.Lost++
		s.missed++
	}
}

// If the encoder panics, write returns an error that wraps errPanic, and the call is dropped.
var errPanic = errors.New("internal error")

func (w *writer) write(e *entry) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v", errPanic, v)
		}
	}()
	if w.file != nil && w.frames.Size() >= w.cfg.SegmentBytes {
		w.finish(false)
	}
	if w.file == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	if err := w.frames.End(w.enc.append(w.frames.Begin(), e, e.dropped-w.before)); err != nil {
		return err
	}
	w.told = max(w.told, e.dropped)
	w.wrote()
	w.dirty = true
	s := w.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= e.size
	s.stats.Written++
	return nil
}

// wrote counts the bytes written since the last call to wrote. The file must end with a complete
// frame.
func (w *writer) wrote() {
	s := w.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.WrittenBytes += w.frames.Size() - w.whole
	s.stats.SegmentBytes += w.frames.Size() - w.whole
	w.whole = w.frames.Size()
}

// tick writes a tick, unless calls are waiting in the queue.
func (w *writer) tick() {
	if time.Now().Before(w.retry) {
		return
	}
	if w.file == nil {
		if err := w.begin(); err != nil {
			w.fail(err)
			return
		}
	}
	s := w.spool
	s.mu.Lock()
	waiting, now, missed := len(s.queue) > 0, s.now(), s.missed
	failed := s.err != nil
	s.mu.Unlock()
	if waiting {
		return
	}
	if err := w.frames.End(appendTick(w.frames.Begin(), now, missed-w.before)); err != nil {
		w.fail(err)
		return
	}
	w.told = missed
	w.wrote()
	w.dirty = w.dirty || failed // after a failure, a successful sync proves that the spool is writable again
	w.announce()
}

// announce wakes HTTP requests that are waiting for a segment to grow or end.
func (w *writer) announce() {
	s := w.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.grown)
	s.grown = make(chan struct{})
}
