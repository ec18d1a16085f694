package tap

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// SpoolConfig says where calls are kept, and how many. The zero value of a field means its
// default; Dir has none.
type SpoolConfig struct {
	// Dir is the folder, which is made where it is missing. One process writes into it.
	Dir string
	// SegmentBytes is the size at which a segment ends and the next begins. Default
	// 64 MiB, or a quarter of MaxBytes where that is less.
	SegmentBytes int64
	// MaxBytes is the most that all segments have together; the oldest are removed before
	// that. Default 8 GiB.
	MaxBytes int64
	// MaxAge is how long a segment is kept after its last call. Default 24 hours.
	MaxAge time.Duration
	// QueueBytes is the most memory that calls take which are not written yet. What comes
	// beyond is dropped. Default 64 MiB.
	QueueBytes int64
	// SyncEvery is the least time between two syncs. Default 100ms.
	SyncEvery time.Duration
	// Mode is the mode of the files, before the umask. Whoever may read the files may
	// enter the folder. Default 0666.
	Mode fs.FileMode
	// Log hears of errors when they begin and end. Default: nobody does.
	Log *slog.Logger
}

func (c SpoolConfig) withDefaults() SpoolConfig {
	if c.MaxBytes == 0 {
		c.MaxBytes = 8 << 30
	}
	if c.SegmentBytes == 0 {
		c.SegmentBytes = min(64<<20, c.MaxBytes/4)
	}
	if c.MaxAge == 0 {
		c.MaxAge = 24 * time.Hour
	}
	if c.QueueBytes == 0 {
		c.QueueBytes = 64 << 20
	}
	if c.SyncEvery == 0 {
		c.SyncEvery = 100 * time.Millisecond
	}
	if c.Mode == 0 {
		c.Mode = 0o666
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// minSegment is the least SegmentBytes: below it, files would be made without end.
const minSegment = 4 << 10

// Validate returns everything that is wrong with the config.
func (c SpoolConfig) Validate() error {
	c = c.withDefaults()
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("dir: must name a folder"))
	}
	if c.SegmentBytes < minSegment {
		errs = append(errs, fmt.Errorf("segment_bytes: %d: must be ≥ %d", c.SegmentBytes, minSegment))
	}
	if c.MaxBytes < 2*c.SegmentBytes {
		errs = append(errs, fmt.Errorf("max_bytes: %d: must be ≥ %d, two segments", c.MaxBytes, 2*c.SegmentBytes))
	}
	if c.MaxAge < 0 {
		errs = append(errs, fmt.Errorf("max_age: %v: must be > 0", c.MaxAge))
	}
	if c.QueueBytes < 0 {
		errs = append(errs, fmt.Errorf("queue_bytes: %d: must be > 0", c.QueueBytes))
	}
	if c.SyncEvery < 0 {
		errs = append(errs, fmt.Errorf("sync_every: %v: must be > 0", c.SyncEvery))
	}
	return errors.Join(errs...)
}

// A Spool keeps calls in a folder. Its methods may be called from many goroutines.
type Spool struct {
	cfg   SpoolConfig
	lock  *os.File
	wake  chan struct{} // there is something to write, or Close was called; room for one
	ended chan struct{} // closed when the writer has ended

	mu     sync.Mutex
	queue  []*entry
	bytes  int64 // of the queue, and of what the writer has taken from it and not written
	closed bool
	latest time.Time     // the last time that was given to a call
	missed int64         // calls that were dropped while the spool was open
	grown  chan struct{} // closed when a segment has grown, and made anew
	open   uint64        // the number of the segment that is written, or 0
	stats  SpoolStats
	err    error // of the last write or sync; nil once one went well
}

// SpoolStats says what a Spool did since it was opened, and what it has.
type SpoolStats struct {
	// Added, Written count calls; those in between wait in the queue, or were dropped.
	Added, Written int64
	// Full, TooLong and Lost count calls that were dropped: the queue was full, the call
	// was longer than a segment takes, or the spool was closed before it could write it.
	Full, TooLong, Lost int64
	// QueuedBytes is about the memory of the calls that are not written yet.
	QueuedBytes int64
	// WrittenBytes is what was written, Syncs how often that was made durable.
	WrittenBytes, Syncs int64
	// Errors counts writes and syncs that failed. Err is the last one, and nil once one
	// went well again: while it is not nil, nothing is written.
	Errors int64
	Err    error
	// Segments and SegmentBytes are what lay in the folder when it was looked at last,
	// Removed the segments that were removed because of their age, or for room.
	Segments     int
	SegmentBytes int64
	Removed      int64
	// Oldest is when the oldest of these segments was begun; zero: there is none.
	Oldest time.Time
}

// OpenSpool opens the spool in a folder and makes the folder where it is missing. Calls of
// earlier processes stay there. The error wraps [ErrLocked] where another process writes into
// the folder. Close, which must be called, ends the goroutine that OpenSpool starts.
func OpenSpool(cfg SpoolConfig) (*Spool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(cfg.Dir, folderMode(cfg.Mode)); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	lock, err := lock(cfg.Dir, cfg.Mode)
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

// folderMode lets everyone into a folder who may read its files.
func folderMode(m fs.FileMode) fs.FileMode { return m | m&0o444>>2 | 0o700 }

// Add keeps a call, which stays the caller's. It never waits for the disk. It reports
// whether the call will be written; one that will not is counted.
//
// A Reader can tell that it has read every call that was added before some time. So a call
// is to be added before the last byte of its answer goes on to the server: whoever has the
// server's answer then knows that the call is there, or will never be.
func (s *Spool) Add(c *Call) bool {
	size := bound(c)
	s.mu.Lock()
	ok := s.room(size)
	s.mu.Unlock()
	if !ok {
		return false
	}
	e := newEntry(c) // while others add theirs
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += e.size - size // packed it takes less than it may
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

// room takes the room for a call in the queue, or counts why there is none. mu is held.
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

// now returns the time, later than all that it returned before. mu is held.
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

// Stats returns what the spool did.
func (s *Spool) Stats() SpoolStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.QueuedBytes, st.Err = s.bytes, s.err
	return st
}

// Close writes and syncs what was added, and releases the folder. It waits for the disk.
// It returns the error that kept it from writing all of it. What is added later is dropped.
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
