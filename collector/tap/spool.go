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

// SpoolConfig configures a Spool. Dir is required. In every other field, zero selects the default.
type SpoolConfig struct {
	// Dir is the folder of the spool. OpenSpool creates it if it does not exist. Only one process
	// at a time can write to it.
	Dir string
	// SegmentBytes is the size at which the spool ends a segment and starts the next one. Default
	// 64 MiB, or a quarter of MaxBytes if that is less.
	SegmentBytes int64
	// MaxBytes limits the total size of all segments. The oldest segments are removed first.
	// Default 8 GiB.
	MaxBytes int64
	// MaxAge is how long a segment is kept after the last write to the segment. Default 24 hours.
	MaxAge time.Duration
	// QueueBytes limits the memory for calls that are waiting to be written. While the queue is
	// full, new calls are dropped. Default 64 MiB.
	QueueBytes int64
	// SyncEvery is the minimum time between two syncs. Default 100 ms.
	SyncEvery time.Duration
	// Log receives a message when writes start to fail, and when they succeed again. By default,
	// these messages are discarded.
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

// minSegment is the minimum value of SegmentBytes. It prevents a very large number of files.
const minSegment = 4 << 10

// Validate joins and returns all errors that it finds in the config.
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

// A Spool stores calls in a folder. Its methods are safe for concurrent use.
type Spool struct {
	cfg   SpoolConfig
	lock  *os.File
	wake  chan struct{} // signals a new call, or Close
	ended chan struct{} // closed when the writer's goroutine has returned

	mu     sync.Mutex
	queue  []*entry
	bytes  int64 // total size of the entries that have not yet been written
	closed bool
	latest time.Time     // the last result of the method now
	missed int64         // number of calls dropped so far
	grown  chan struct{} // closed and replaced when a segment grows or ends
	open   uint64        // number of the open segment, or 0
	stats  SpoolStats
	err    error // the error of the last write or sync; nil after a success
}

// SpoolStats counts the work of a Spool since it was opened, and describes its folder.
type SpoolStats struct {
	// Written counts the calls written to a segment. All other calls that were passed to Add are
	// waiting in the queue or have been dropped.
	Written int64
	// Full, TooLong and Lost count dropped calls by reason: the queue was full, the call was too
	// large for a payload, or the call was lost because of an internal error or because the spool
	// was closed.
	Full, TooLong, Lost int64
	// QueuedBytes is the approximate memory that the unwritten calls use.
	QueuedBytes int64
	// WrittenBytes counts the bytes written to segments. Syncs counts successful syncs.
	WrittenBytes, Syncs int64
	// Errors counts failed writes and syncs. Err is the last error, or nil after a success. While
	// Err is not nil, the spool does not write calls.
	Errors int64
	Err    error
	// SegmentBytes is the total size of the segments in the folder. Removed counts the segments that
	// were removed because of MaxAge or MaxBytes.
	SegmentBytes, Removed int64
	// Oldest is the start time of the oldest segment, or zero if there are no segments.
	Oldest time.Time
}

// OpenSpool opens the spool in the folder cfg.Dir. It keeps calls that earlier processes wrote to
// the folder. If another process is writing to the folder, the error wraps [ErrLocked]. OpenSpool
// starts a goroutine. The caller must call Close to stop it.
func OpenSpool(cfg SpoolConfig) (*Spool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(cfg.Dir, 0o777); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	lock, err := LockFolder(cfg.Dir)
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

// Add copies a call into the queue and reports whether there was room. If not, the call is dropped
// and counted in Stats. Add never waits for the disk.
//
// Call Add before you send the last byte of the call's answer to the server. The call has then been
// queued or dropped by the time a client receives the server's answer. The client can pass the
// current time to [Reader.Await] to make sure that its Reader has returned the call.
func (s *Spool) Add(c *Call) bool {
	size := PayloadBound(c)
	s.mu.Lock()
	ok := s.room(size)
	s.mu.Unlock()
	if !ok {
		return false
	}
	e := newEntry(c) // outside the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += e.size - size // replace the estimate with the size after packing
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

// room reserves size bytes in the queue for a call. If the call must be dropped, room counts the
// reason and returns false. The caller must hold s.mu.
func (s *Spool) room(size int64) bool {
	switch {
	case s.closed:
		s.stats.Lost++
	case size > MaxPayload:
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

// now returns the current time or, if that is not later than the previous result, a slightly later
// time. The caller must hold s.mu.
func (s *Spool) now() time.Time {
	t := time.Now().Round(0)
	if !t.After(s.latest) {
		t = s.latest.Add(1)
	}
	s.latest = t
	return t
}

// Stats returns the current stats.
func (s *Spool) Stats() SpoolStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.QueuedBytes, st.Err = s.bytes, s.err
	return st
}

// Close writes and syncs the queued calls and unlocks the folder. It waits for the disk. If Close
// cannot write all calls, it returns the error. Calls that are added after Close are dropped.
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
