package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/rollout-rl/rollout/sink/durable"
)

// A disk contains the operations that change the folder of a store. Tests replace it to make each
// operation fail, or to stop the process there.
type disk struct {
	create   func(path string, mode fs.FileMode) (*os.File, error) // creates a new file
	write    func(f *os.File, b []byte, at int64) (int, error)
	truncate func(f *os.File, size int64) error
	sync     func(f *os.File) error
	rename   func(from, to string) error
	remove   func(path string) error
	syncDir  func(dir string) error
}

func osDisk() disk {
	return disk{
		create: func(path string, mode fs.FileMode) (*os.File, error) {
			return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		},
		write: (*os.File).WriteAt, truncate: (*os.File).Truncate, sync: (*os.File).Sync,
		rename: os.Rename, remove: os.Remove, syncDir: durable.SyncDir,
	}
}

// A nameSync makes the names of the files durable.
type nameSync struct {
	mu      sync.Mutex  // held during a sync, so that each caller returns after a sync that includes its change
	changed atomic.Bool // a name has changed since the last sync that succeeded
}

// syncNames makes the names in both folders durable. sealed/ is first: otherwise a power failure could
// leave a file without a name.
func (s *Store) syncNames() error {
	s.names.mu.Lock()
	defer s.names.mu.Unlock()
	if !s.names.changed.Swap(false) {
		return nil
	}
	err := s.disk.syncDir(filepath.Join(s.cfg.Dir, sealedFolder))
	if err == nil {
		err = s.disk.syncDir(filepath.Join(s.cfg.Dir, openFolder))
	}
	if err != nil {
		s.names.changed.Store(true)
	}
	return err
}

// syncFile syncs a file of the session. It runs one sync at a time and returns the first error again:
// the system reports dropped bytes to only one of two concurrent syncs, and the next sync succeeds.
func (x *Session) syncFile(f *os.File) error {
	x.syncing.Lock()
	defer x.syncing.Unlock()
	if x.dropped != nil {
		return x.dropped
	}
	err := x.store.disk.sync(f)
	if err != nil && !errors.Is(err, os.ErrClosed) { // a closed file is synced or no longer needed
		x.dropped = err
	}
	return err
}
