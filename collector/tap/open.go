package tap

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rollout-rl/rollout/sink/durable"
	"github.com/rollout-rl/rollout/sink/frame"
)

// This file contains the methods that start, sync, end and abandon segments.

func (w *writer) begin() error {
	w.clean()
	now := time.Now()
	w.number = max(w.number+1, uint64(max(now.UnixMilli(), 1)))
	w.setOpen(w.number) // set before the file exists, because a reader that finds the file must know that it can still grow
	f, err := w.create()
	if err != nil {
		w.setOpen(0)
		return err
	}
	w.file, w.enc, w.begun, w.before = f, encoder{}, now, w.told
	w.head, w.whole = w.frames.Size(), w.frames.Size()
	s := w.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.SegmentBytes += w.whole
	if s.stats.Oldest.IsZero() {
		s.stats.Oldest = begunAt(w.number)
	}
	return nil
}

func (w *writer) setOpen(n uint64) {
	w.spool.mu.Lock()
	defer w.spool.mu.Unlock()
	w.spool.open = n
}

func (w *writer) create() (*os.File, error) {
	path := segmentPath(w.cfg.Dir, w.number)
	if err := os.MkdirAll(w.cfg.Dir, 0o777); err != nil { // another process might have removed the folder
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	w.frames, err = frame.NewWriter(f, header(w.number))
	if err == nil {
		err = w.frames.End(appendHead(w.frames.Begin(), head{w.last, w.process}))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return f, nil
}

func (w *writer) sync(now time.Time) {
	w.dirty, w.syncing, w.syncedAt = false, true, now
	r := syncResult{file: w.file, size: w.frames.Size()}
	go func() {
		r.err = r.file.Sync()
		w.synced <- r
	}()
}

func (w *writer) syncEnded(r syncResult) {
	w.syncing = false
	if r.file != w.file { // the segment failed during the sync, and fail has already counted the error
		_ = r.file.Close()
		return
	}
	err := r.err
	if err == nil {
		err = w.frames.SyncedTo(r.size)
	}
	if err != nil {
		w.fail(err)
		return
	}
	w.wrote()
	w.durable()
}

func (w *writer) durable() {
	s := w.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Syncs++
	if s.err != nil {
		w.cfg.Log.Info("the spool is writable again", "dir", w.cfg.Dir)
	}
	s.err = nil
}

// finish ends and syncs the open segment. If finish fails, the calls already written stay in the
// file. closed must be true if no other segment follows.
func (w *writer) finish(closed bool) {
	if w.syncing {
		w.syncEnded(<-w.synced)
	}
	if w.file == nil {
		return
	}
	err := w.frames.End(appendEnd(w.frames.Begin(), closed))
	if err == nil {
		err = w.file.Sync()
	}
	if err == nil {
		err = w.frames.Synced()
	}
	if err == nil {
		w.wrote()
		err = errors.Join(w.file.Close(), durable.SyncDir(w.cfg.Dir))
	}
	if err != nil {
		w.fail(err)
		return
	}
	w.last = w.number
	w.closed()
	w.durable()
}

// fail counts an error and abandons the open segment. After an error, nothing more can be appended
// to that segment.
func (w *writer) fail(err error) {
	s := w.spool
	s.mu.Lock()
	if s.err == nil {
		w.cfg.Log.Warn("cannot write to the spool; calls wait in the queue and are dropped when the queue is full", "dir", w.cfg.Dir, "error", err)
	}
	s.stats.Errors++
	s.err = fmt.Errorf("%s: %w", w.cfg.Dir, err)
	s.mu.Unlock()
	w.retry = time.Now().Add(retryEvery)
	if w.file == nil {
		return
	}
	// Remove a partial frame, so that readers do not have to skip it.
	_ = w.file.Truncate(w.whole)
	if w.whole == w.head {
		_ = os.Remove(w.file.Name()) // the segment contains no call
	} else {
		w.last = w.number
	}
	if !w.syncing { // during a sync the file must stay open; syncEnded closes it
		_ = w.file.Close()
	}
	w.closed()
}

func (w *writer) closed() {
	w.file, w.frames, w.enc, w.dirty = nil, nil, encoder{}, false
	w.setOpen(0)
	w.announce()
}
