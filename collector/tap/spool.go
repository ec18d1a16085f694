package tap

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// SpoolConfig configures a Spool. A zero field means its default; Dir is required.
type SpoolConfig struct {
	// Dir is the folder, created if missing. Only one process writes into it.
	Dir string
	// SegmentBytes is the size at which a segment ends and the next one begins. Default 64 MiB, or
	// a quarter of MaxBytes if that is less.
	SegmentBytes int64
	// MaxBytes bounds the total size of all segments; the oldest are removed first. Default 8 GiB.
	MaxBytes int64
	// MaxAge is how long a segment is kept after its last call. Default 24 hours.
	MaxAge time.Duration
	// QueueBytes bounds the memory of unwritten calls; excess calls are dropped. Default 64 MiB.
	QueueBytes int64
	// SyncEvery is the least time between two syncs. Default 100 ms.
	SyncEvery time.Duration
	// Log logs when errors begin and end. Default: discard.
	Log *slog.Logger
}

func (c SpoolConfig) withDefaults() SpoolConfig {
	c.MaxBytes = cmp.Or(c.MaxBytes, 8<<30)
	c.SegmentBytes = cmp.Or(c.SegmentBytes, min(64<<20, c.MaxBytes/4))
	c.MaxAge = cmp.Or(c.MaxAge, 24*time.Hour)
	c.QueueBytes = cmp.Or(c.QueueBytes, 64<<20)
	c.SyncEvery = cmp.Or(c.SyncEvery, 100*time.Millisecond)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// minSegment is the least SegmentBytes, to avoid a flood of files.
const minSegment = 4 << 10

// Validate returns all errors of the config, joined.
func (c SpoolConfig) Validate() error {
	c = c.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Dir != "", "dir: required")
	check(c.SegmentBytes >= minSegment, "segment_bytes: %d: must be ≥ %d", c.SegmentBytes, minSegment)
	check(c.MaxBytes >= 2*c.SegmentBytes, "max_bytes: %d: must be ≥ %d (two segments)", c.MaxBytes, 2*c.SegmentBytes)
	check(c.MaxAge >= 0, "max_age: %v: must be ≥ 0", c.MaxAge)
	check(c.QueueBytes >= 0, "queue_bytes: %d: must be ≥ 0", c.QueueBytes)
	check(c.SyncEvery >= 0, "sync_every: %v: must be ≥ 0", c.SyncEvery)
	return errors.Join(errs...)
}

// A Spool keeps calls in a folder. Its methods are safe for concurrent use.
type Spool struct {
	cfg   SpoolConfig
	lock  *os.File
	wake  chan struct{} // signals a new call, or Close
	ended chan struct{} // closed when the writer has returned

	mu     sync.Mutex
	queue  []*entry
	bytes  int64 // of the queue, and of entries taken from it but not yet written
	closed bool
	latest time.Time     // the last time given to a call
	missed int64         // calls dropped so far
	grown  chan struct{} // closed and replaced when a segment grows
	open   uint64        // number of the open segment, or 0
	stats  SpoolStats
	err    error // of the last write or sync; nil after a success
}

// SpoolStats counts the work of a Spool since it was opened, and measures its content.
type SpoolStats struct {
	// Added and Written count calls. The difference is waiting in the queue, or was dropped.
	Added, Written int64
	// Full, TooLong and Lost count dropped calls: the queue was full, the call was too long for a
	// segment, or the spool was closed before it could write the call.
	Full, TooLong, Lost int64
	// QueuedBytes is the approximate memory of the calls that are not yet written.
	QueuedBytes int64
	// WrittenBytes counts written bytes. Syncs counts successful syncs.
	WrittenBytes, Syncs int64
	// Errors counts failed writes and syncs. Err is the last error, or nil after a success. While
	// Err is not nil, nothing is written.
	Errors int64
	Err    error
	// Segments and SegmentBytes measure the folder. Removed counts the segments removed because of
	// MaxAge or MaxBytes.
	Segments     int
	SegmentBytes int64
	Removed      int64
	// Oldest is the start of the oldest segment, or zero if there is none.
	Oldest time.Time
}

// OpenSpool opens the spool in a folder, which it creates if missing. Calls of earlier processes
// stay in it. The error wraps [ErrLocked] if another process writes into the folder. OpenSpool
// starts a goroutine; the caller must call Close to end it.
func OpenSpool(cfg SpoolConfig) (*Spool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(cfg.Dir, 0o777); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	lock, err := lock(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	list, err := segments(cfg.Dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("spool: %w", err), lock.Close())
	}
	s := &Spool{cfg: cfg, lock: lock, wake: make(chan struct{}, 1), ended: make(chan struct{}), grown: make(chan struct{})}
	w := &writer{spool: s, cfg: cfg, process: uint64(time.Now().UnixNano()), synced: make(chan syncResult, 1)}
	if n := len(list); n > 0 {
		w.number, w.last = list[n-1].number, list[n-1].number
	}
	w.clean()
	go w.run()
	return s, nil
}

// Add copies a call into the queue. It never waits for the disk. It reports whether the call was
// queued; a dropped call is counted in Stats.
//
// A Reader can detect that it has read every call added before some time. So add a call before
// sending the last byte of its answer to the server. A client that has the server's answer then
// knows that the call is in the spool, or was dropped.
func (s *Spool) Add(c *Call) bool {
	size := bound(c)
	s.mu.Lock()
	ok := s.room(size)
	s.mu.Unlock()
	if !ok {
		return false
	}
	e := newEntry(c) // outside the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += e.size - size // packed ids take less than the estimate
	if s.closed {
		s.bytes -= e.size
		s.stats.Lost++
		return false
	}
	e.added, e.dropped = s.now(), s.missed
	s.queue = append(s.queue, e)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

// room reserves room for a call in the queue, or counts why there is none. s.mu is held.
func (s *Spool) room(size int64) bool {
	s.stats.Added++
	switch {
	case s.closed:
		s.stats.Lost++
	case size > maxPayload:
		s.stats.TooLong++
		s.missed++
	case s.bytes+size > s.cfg.QueueBytes:
		s.stats.Full++
		s.missed++
	default:
		s.bytes += size
		return true
	}
	return false
}

// now returns the time, always later than its previous results. s.mu is held.
func (s *Spool) now() time.Time {
	t := time.Now().Round(0)
	if !t.After(s.latest) {
		t = s.latest.Add(1)
	}
	s.latest = t
	return t
}

// Dir returns the folder of the spool.
func (s *Spool) Dir() string { return s.cfg.Dir }

// Stats returns the counts so far.
func (s *Spool) Stats() SpoolStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.QueuedBytes, st.Err = s.bytes, s.err
	return st
}

// Close writes and syncs the queued calls, and unlocks the folder. It waits for the disk. It
// returns the error that prevented it from writing all calls. Calls added later are dropped.
func (s *Spool) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	<-s.ended
	if again {
		return nil
	}
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("spool: %w", err)
	}
	return errors.Join(err, s.lock.Close())
}
