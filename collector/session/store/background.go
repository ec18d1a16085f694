package store

import (
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/sink/frame"
)

const (
	cleanEvery = 10 * time.Second
	idleAfter  = 5 * time.Minute // after this time without a call, the state of a session is dropped
	syncers    = 8               // number of files that are synced at the same time
)

// run syncs the written files and removes old sessions until Close is called.
func (s *Store) run() {
	defer close(s.ended)
	tick := time.NewTicker(s.cfg.SyncEvery)
	defer tick.Stop()
	var cleaned time.Time
	for {
		if now := time.Now(); now.Sub(cleaned) >= cleanEvery {
			cleaned = now
			s.clean(now)
		}
		select {
		case <-s.quit:
			return
		case <-tick.C:
			s.syncDirty()
		}
	}
}

func (s *Store) syncDirty() {
	s.mu.Lock()
	list := slices.Collect(maps.Keys(s.dirty))
	s.mu.Unlock()
	var done sync.WaitGroup
	for part := range slices.Chunk(list, max(1, (len(list)+syncers-1)/syncers)) {
		done.Go(func() {
			for _, x := range part {
				x.syncInBackground()
			}
		})
	}
	done.Wait()
	if err := s.syncNames(); err != nil {
		_ = s.failed(err) // logged; the next round retries
	}
}

// syncInBackground syncs the file of a session. Calls can be added meanwhile.
func (x *Session) syncInBackground() {
	x.mu.Lock()
	f, size := x.file, x.size
	x.mu.Unlock()
	if f == nil {
		return
	}
	err := x.syncFile(f)
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil && !errors.Is(err, os.ErrClosed) {
		x.fail(err)
	}
	if x.file != f { // it failed, or another sync has closed it
		return
	}
	x.durable = max(x.durable, size)
	grown := x.size > size
	if err := x.mark(); err != nil {
		_ = x.store.failed(err)
	}
	if !grown {
		x.close()
	}
}

// mark records in the file what is durable. The record need not be durable itself. The caller must hold
// x.mu.
func (x *Session) mark() error {
	buf := takeBuffer()
	defer giveBuffer(buf)
	if err := frame.Continue(buf, x.size, 0).SyncedTo(x.durable); err != nil {
		return err
	}
	return x.writeBytes(buf.Bytes())
}

// clean removes old sessions, and drops the state of idle sessions.
func (s *Store) clean(now time.Time) {
	s.mu.Lock()
	open := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	for _, x := range open {
		x.rest(now)
	}
	if s.cfg.MaxAge > 0 || s.cfg.MaxBytes > 0 {
		s.retain(now)
	}
}

// rest seals the session if End failed after it had written the end, and writes the deliveries that
// could not be written. It drops the state of an idle session, and removes the session if it is too
// old. An End that nobody repeats does not keep it.
func (x *Session) rest(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.phase == phaseEnding && x.end != nil && x.failed == nil {
		_ = x.place() // an error is logged, and the next round retries
	}
	_ = x.deliver() // the same
	if !x.removable() || x.file != nil {
		return
	}
	idle := now.Sub(x.used)
	if idle > idleAfter && x.size >= 0 {
		x.state = nil
	}
	s := x.store
	if s.cfg.MaxAge == 0 || idle <= s.cfg.MaxAge {
		return
	}
	if err := x.discard(); err != nil {
		s.cfg.Log.Warn("cannot remove an old session", "file", x.path, "error", err)
		return
	}
	s.mu.Lock()
	s.stats.Removed++
	s.mu.Unlock()
	s.cfg.Log.Warn("removed an open session that was not used", "session", x.id, "age", idle)
}

// retain removes the sealed sessions that are older than MaxAge, and the oldest ones while the total
// size exceeds MaxBytes.
func (s *Store) retain(now time.Time) {
	names, err := list(s.cfg.Dir, "")
	if err != nil {
		s.cfg.Log.Warn("cannot list the sealed sessions", "error", err)
		return
	}
	infos := make([]os.FileInfo, len(names)) // nil if the session has just been removed
	total := int64(0)
	for i, name := range names {
		if infos[i], err = os.Stat(s.sealedPath(name)); err == nil {
			total += infos[i].Size()
		}
	}
	for i, name := range names {
		info := infos[i]
		if info == nil {
			continue
		}
		old := s.cfg.MaxAge > 0 && now.Sub(info.ModTime()) > s.cfg.MaxAge
		if !old && (s.cfg.MaxBytes == 0 || total <= s.cfg.MaxBytes) {
			return // the later sessions are not older
		}
		total -= info.Size() // even if it cannot be removed, because the limit must not cost later sessions
		s.mu.Lock()
		err := s.removeSealed(name)
		if err == nil {
			s.stats.Removed++
		}
		s.mu.Unlock()
		if err != nil {
			s.cfg.Log.Warn("cannot remove an old session", "session", idIn(name), "error", err)
			continue
		}
		s.cfg.Log.Warn("removed a sealed session", "session", idIn(name))
	}
}
