package ctl

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

// mode is who may connect: the user who collects.
const mode = 0o600

// temporary begins the name of a socket that is being made. The folder of a run is cleared of
// such names when it is opened.
const temporary = ".tmp-"

// A Listener is the socket of a run. Until [Listener.Serve] is called, clients wait.
type Listener struct {
	path     string
	listener *net.UnixListener
	made     fs.FileInfo // of the socket
	patience time.Duration
}

// Listen makes the socket of the run in dir. The caller holds the lock of the run, so a socket
// that is there already is that of a process which was killed, and is replaced. What is no
// socket stays, and is an error.
//
// On a file system that keeps no sockets the error wraps [errors.ErrUnsupported]. Its hint says
// how a run does without one. Close removes the socket.
func Listen(dir string) (*Listener, error) {
	path := Path(dir)
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket == 0 {
		return nil, exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s: is there, and is not a socket", path)), "move it out of the folder of the run")
	}
	// It is bound under another name and renamed: whoever finds it finds it with its mode, and
	// a stale socket is replaced in one step.
	name := temporary + rand.Text()[:8]
	var l *Listener
	err := within(dir, name, func(address string) error {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), mode) }) // Linux takes it for the file
		}}
		listener, err := config.Listen(context.Background(), "unix", address)
		if err != nil {
			return err
		}
		unix, ok := listener.(*net.UnixListener)
		if !ok {
			return errors.Join(errors.New("not a Unix socket"), listener.Close())
		}
		unix.SetUnlinkOnClose(false) // the address is not its name
		l = &Listener{path: path, listener: unix, patience: patience}
		return nil
	})
	if err != nil {
		return nil, unbound(path, err)
	}
	at := filepath.Join(dir, name)
	err = os.Chmod(at, mode)
	if err == nil {
		l.made, err = os.Lstat(at)
	}
	if err == nil {
		err = os.Rename(at, path)
	}
	if err != nil {
		_ = os.Remove(at)
		return nil, errors.Join(unbound(path, err), l.listener.Close())
	}
	return l, nil
}

// unbound is the error of a socket that cannot be made.
func unbound(path string, err error) error {
	if inner, ok := errors.AsType[*net.OpError](err); ok {
		err = inner.Err // the rest names an address that is not the path
	}
	if inner, ok := errors.AsType[*os.SyscallError](err); ok {
		err = inner.Err
	}
	for _, no := range []error{syscall.EPERM, syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EINVAL, syscall.ENXIO} {
		// mknod(2) says EPERM where a file system knows no such files; EACCES is the word for
		// permissions.
		if errors.Is(err, no) {
			err = fmt.Errorf("%s: the file system keeps no sockets (%w): %w", path, err, errors.ErrUnsupported)
			return exit.Hint(exit.With(exit.Storage, err), "give a folder on a local disk with --out; without the socket tasks come on standard input only, and rollout ctl cannot reach the run")
		}
	}
	return exit.With(exit.Storage, fmt.Errorf("%s: %w", path, err))
}

// Close ends Serve, which closes all connections, and removes the socket.
func (l *Listener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.made) {
		_ = os.Remove(l.path) // a stale one is replaced
	}
	if err := l.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
