package tap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const lockFile = "lock"

// ErrLocked means that another process is writing to the spool's folder.
var ErrLocked = errors.New("tap: another process is writing to this spool")

// LockFolder tries up to lockTries times and pauses for lockPause between tries.
const (
	lockTries = 10
	lockPause = 10 * time.Millisecond
)

// isFree reports whether no process is writing to the spool's folder. To find out, it briefly takes
// a shared lock.
func isFree(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // releases the lock
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil
}

// LockFolder locks a folder for writing. Only one process at a time can hold the lock. The lock ends
// when the returned file, DIR/lock, is closed, or when the process ends. If another process holds
// the lock, the error wraps ErrLocked.
func LockFolder(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o666)
	if err != nil {
		return nil, err
	}
	for range lockTries {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		time.Sleep(lockPause) // a reader that calls isFree can hold the lock for a moment
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
