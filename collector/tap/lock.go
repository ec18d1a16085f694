package tap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockFile is the file of a spool's folder that its process locks.
const lockFile = "lock"

// ErrLocked means that another process writes into the folder of a spool.
var ErrLocked = errors.New("tap: another process writes into this spool")

// lock tries lockTries times, lockPause apart.
const (
	lockTries = 10
	lockPause = 10 * time.Millisecond
)

// isFree reports whether no process writes into the folder of a spool. It takes the lock for
// a moment.
func isFree(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it releases the lock
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil
}

// lock takes the lock of a spool's folder, which the system releases when the process ends
// in any way. The file stays: if it were removed, two processes could lock two files of
// the same name.
func lock(dir string, mode fs.FileMode) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, mode)
	if err != nil {
		return nil, err
	}
	for range lockTries {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		time.Sleep(lockPause) // a reader holds it for a moment
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return f, nil
}
