package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/sink/failpoint"
	"github.com/rollout-rl/rollout/sink/frame"
)

// A writer appends entries to the segment of this process and syncs them in the background. The
// method append sets a timer unless the timer is already set. The timer fires Config.SyncEvery
// after the start of the last sync, or at once if that time has passed. Other goroutines can write
// during a sync.
type writer struct {
	file  *os.File
	every time.Duration

	mu       sync.Mutex
	frames   *frame.Writer
	err      error // error from a write or a sync; later writes fail
	closed   bool
	unsynced bool        // an entry was written since the last sync started
	timer    *time.Timer // calls sync
	pending  bool        // the timer is set, or a sync is running
	last     time.Time   // time at which the last sync started

	syncs sync.WaitGroup // the counter is 1 while pending is true
}

func create(s segment, mode fs.FileMode, every time.Duration) (*writer, error) {
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	frames, err := frame.NewWriter(f, header(s.process))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &writer{file: f, every: every, frames: frames}, nil
}

// append writes an entry for sample k. Once append has returned, the entry survives a crash of the
// process. Once the next sync has ended, it also survives a power failure.
func (w *writer) append(e *Entry, k id, at failpoint.Name) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("%v entry of attempt %d: %w", e.Op, e.Attempt, os.ErrClosed)
	}
	if w.err == nil {
		w.err = w.frames.End(e.append(w.frames.Begin(), k))
	}
	if w.err != nil {
		return fmt.Errorf("%s: %w", w.file.Name(), w.err)
	}
	failpoint.Hit(at)
	w.unsynced = true
	w.schedule()
	return nil
}

// schedule sets the timer unless it is already set. The caller holds mu.
func (w *writer) schedule() {
	if w.pending {
		return
	}
	w.pending = true
	w.syncs.Add(1)
	w.timer = time.AfterFunc(w.every-time.Since(w.last), func() {
		defer w.syncs.Done()
		w.sync()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pending = false
		if w.unsynced && !w.closed {
			w.schedule()
		}
	})
}

func (w *writer) sync() {
	w.mu.Lock()
	size := w.frames.Size()
	w.last, w.unsynced = time.Now(), false
	w.mu.Unlock()
	err := w.file.Sync() // mu is not held, so that other goroutines can write
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		// Mark the data before the offset size as durable. A reader reports damage to durable data
		// as an error.
		err = w.frames.SyncedTo(size)
	}
	w.err = errors.Join(w.err, err)
}

// close syncs and closes the file, and removes a file without entries. Later appends fail.
func (w *writer) close() error {
	w.mu.Lock()
	again := w.closed
	w.closed = true
	if !again && w.pending && w.timer.Stop() {
		w.syncs.Done()
	}
	w.mu.Unlock()
	if again {
		return nil
	}
	w.syncs.Wait()
	w.sync()
	err := errors.Join(w.err, w.file.Close())
	if err == nil && w.frames.Size() == frame.HeaderSize {
		err = os.Remove(w.file.Name())
	}
	return err
}
