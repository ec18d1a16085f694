package runfolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

// A Holder is the process that holds the lock of a run's folder. The lock file names the process
// only for people to read. The lock itself is a kernel lock, which is released no matter how the
// process ends.
type Holder struct {
	PID       int       `json:"pid"`
	Host      string    `json:"host"`
	StartedAt time.Time `json:"started_at"`
}

// String describes the process. It returns "" if the process is unknown.
func (h Holder) String() string {
	if h.PID == 0 {
		return ""
	}
	return fmt.Sprintf("process %d on %s, since %s", h.PID, h.Host, h.StartedAt.Local().Format("2006-01-02 15:04:05"))
}

// A Lock is the lock of a run's folder, held by this process.
type Lock struct {
	file *os.File
	// Stale is the process that last held the lock and ended without releasing it, if any.
	Stale Holder
}

// TakeLock retries while the lock is held and the lock file does not name the holder. It tries up
// to lockTries times and pauses for lockPause between tries.
const (
	lockTries = 10
	lockPause = 20 * time.Millisecond
)

// TakeLock locks a run's folder. If another process holds the lock, the error has the code
// [exit.Locked] and names the process.
func TakeLock(dir string, mode fs.FileMode) (*Lock, error) {
	path := filepath.Join(dir, LockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, mode)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return nil, foreignLock(path, "a symbolic link")
	case errors.Is(err, syscall.EISDIR):
		return nil, foreignLock(path, "a folder")
	}
	if err != nil {
		return nil, exit.Hint(exit.With(exit.Storage, err), "make the folder writable")
	}
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		_ = f.Close() // nothing was written
		return nil, foreignLock(path, "not a regular file")
	}
	var held Holder
	for range lockTries {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if held = readHolder(f); !errors.Is(err, syscall.EWOULDBLOCK) || held.PID != 0 {
			break
		}
		time.Sleep(lockPause) // the function Locked of another process holds the lock for a moment
	}
	if err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, LockedError(dir, held, "wait until that process ends")
		}
		return nil, exit.With(exit.Storage, fmt.Errorf("cannot lock %s: %w", dir, err))
	}
	if !sameFile(f, path) { // the process that created the folder has removed it again
		_ = f.Close() // nothing was written
		return nil, exit.Hint(exit.With(exit.Locked, fmt.Errorf("%s: another process has just created a run there and removed it", dir)), "try again")
	}
	l := &Lock{file: f, Stale: held}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	b, err := json.Marshal(Holder{os.Getpid(), host, time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(b, '\n'), 0)
	}
	if err != nil {
		return nil, exit.With(exit.Storage, errors.Join(fmt.Errorf("cannot lock %s: %w", dir, err), f.Close()))
	}
	return l, nil
}

// foreignLock returns the error for a lock file that is not a regular file. TakeLock does not lock
// such a file, because it would then overwrite the file's target.
func foreignLock(path, what string) error {
	return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s is not a run's lock file: it is %s", path, what)), "move it away, or pass another folder with --out")
}

// sameFile reports whether path is still the path of f.
func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// Close releases the lock and empties the file. An empty file shows that the process released the
// lock before it ended. Close does not remove the file, because otherwise two processes could lock
// two different files under the same name.
func (l *Lock) Close() error {
	return errors.Join(l.file.Truncate(0), l.file.Close())
}

// readHolder returns the process that holds or last held the lock. It returns the zero Holder if
// the file cannot be decoded.
func readHolder(f *os.File) (h Holder) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	if err == nil && json.Unmarshal(b, &h) != nil {
		return Holder{}
	}
	return h
}

// Locked reports whether another process holds the lock of a run's folder. If so, it returns the
// process.
func Locked(dir string) (Holder, bool) {
	f, err := os.OpenFile(filepath.Join(dir, LockFile), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Holder{}, false
	}
	defer func() { _ = f.Close() }() // read only
	if !errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		return Holder{}, false
	}
	return readHolder(f), true
}

// LockedError returns the error for a folder that another process collects into or scores again.
func LockedError(dir string, h Holder, hint string) error {
	text := dir + ": another process is using this folder"
	if who := h.String(); who != "" {
		text += " (" + who + ")"
	}
	return exit.Hint(exit.With(exit.Locked, errors.New(text)), hint)
}
