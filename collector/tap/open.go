package tap

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rollout-rl/rollout/sink/durable"
	"github.com/rollout-rl/rollout/sink/frame"
)

// This file is how the writer begins, syncs, ends and leaves a segment.

// begin begins the next segment.
func (w *writer) begin() error {
	w.clean()
	now := time.Now()
	w.number = max(w.number+1, uint64(max(now.UnixMilli(), 1)))
	w.setOpen(w.number) // before it is there: whoever finds it must know that it will grow
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
	s.stats.Segments++
	s.stats.SegmentBytes += w.whole
	if s.stats.Oldest.IsZero() {
		s.stats.Oldest = begunAt(w.number)
	}
	return nil
}

// setOpen says which segment is written; 0: none.
func (w *writer) setOpen(n uint64) {
	w.spool.mu.Lock()
	defer w.spool.mu.Unlock()
	w.spool.open = n
}

// create creates the file of a segment, with its header.
func (w *writer) create() (*os.File, error) {
	path := segmentPath(w.cfg.Dir, w.number)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, w.cfg.Mode)
	if errors.Is(err, os.ErrNotExist) { // somebody removed the folder
		err = os.MkdirAll(w.cfg.Dir, folderMode(w.cfg.Mode))
		if err == nil {
			f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, w.cfg.Mode)
		}
	}
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

// sync begins to sync the segment, while others are added.
func (w *writer) sync(now time.Time) {
	w.dirty, w.syncing, w.syncedAt = false, true, now
	r := syncResult{file: w.file, size: w.frames.Size()}
	go func() {
		r.err = r.file.Sync()
		w.synced <- r
	}()
}

// syncEnded notes what was made durable.
func (w *writer) syncEnded(r syncResult) {
	w.syncing = false
	if r.file != w.file { // it failed since, for a reason that was counted
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

// durable notes that a sync went well.
func (w *writer) durable() {
	s := w.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Syncs++
	if s.err != nil {
		w.cfg.Log.Info("the spool is written again", "dir", w.cfg.Dir)
	}
	s.err = nil
}

// finish syncs and ends the open segment. Its calls are in the file, whatever comes of it.
// closed says that no other one will follow.
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

// fail notes an error, and leaves the open segment: what is in it cannot be gone on with.
func (w *writer) fail(err error) {
	s := w.spool
	s.mu.Lock()
	if s.err == nil {
		w.cfg.Log.Warn("the spool cannot be written; calls wait, and are dropped once the queue is full", "dir", w.cfg.Dir, "error", err)
	}
	s.stats.Errors++
	s.err = fmt.Errorf("%s: %w", w.cfg.Dir, err)
	s.mu.Unlock()
	w.retry = time.Now().Add(retryEvery)
	if w.file == nil {
		return
	}
	// Half a frame harms no reader. Without it they need not pass over it.
	_ = w.file.Truncate(w.whole)
	if w.whole == w.head {
		_ = os.Remove(w.file.Name()) // there is no call in it
	} else {
		w.last = w.number
	}
	if !w.syncing { // else syncEnded closes it
		_ = w.file.Close()
	}
	w.closed()
}

// closed forgets the open segment.
func (w *writer) closed() {
	w.file, w.frames, w.enc, w.dirty = nil, nil, encoder{}, false
	w.setOpen(0)
	w.announce()
}
