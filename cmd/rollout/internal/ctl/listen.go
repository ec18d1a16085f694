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

// mode gives access only to the user who runs the collector.
const mode = 0o600

// temporary is the prefix of the name of a socket that is being created. When a run's folder is
// opened, files with this prefix are removed.
const temporary = ".tmp-"

// A Listener is the socket of a run. Clients that connect wait until [Listener.Serve] is called.
type Listener struct {
	path     string
	listener *net.UnixListener
	made     fs.FileInfo // identifies the socket
	patience time.Duration
}

// Listen creates the socket of the run in dir. The caller holds the lock of the run. An existing
// socket therefore belongs to a killed process, and Listen replaces it. If the file is not a
// socket, Listen leaves it unchanged and returns an error.
//
// If the file system does not support sockets, the error wraps [errors.ErrUnsupported]. Its hint
// explains how to run without a socket. Close removes the socket.
func Listen(dir string) (*Listener, error) {
	path := Path(dir)
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket == 0 {
		return nil, exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s exists but is not a socket", path)), "move this file out of the run folder")
	}
	// Bind the socket under another name, and then rename it. The socket then always has the right
	// mode, and a stale socket is replaced in one step.
	name := temporary + rand.Text()[:8]
	var l *Listener
	err := within(dir, name, func(address string) error {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), mode) }) // on Linux, this sets the mode of the socket file
		}}
		listener, err := config.Listen(context.Background(), "unix", address)
		if err != nil {
			return err
		}
		unix, ok := listener.(*net.UnixListener)
		if !ok {
			return errors.Join(errors.New("not a Unix socket"), listener.Close())
		}
		unix.SetUnlinkOnClose(false) // Close removes the socket itself, because the socket is renamed
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

func unbound(path string, err error) error {
	if inner, ok := errors.AsType[*net.OpError](err); ok {
		err = inner.Err // the outer error contains the short address instead of the path
	}
	if inner, ok := errors.AsType[*os.SyscallError](err); ok {
		err = inner.Err
	}
	for _, no := range []error{syscall.EPERM, syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EINVAL, syscall.ENXIO} {
		// mknod(2) returns EPERM if the file system does not support sockets. If permissions are
		// missing, it returns EACCES.
		if errors.Is(err, no) {
			err = fmt.Errorf("%s: the file system does not support sockets (%w): %w", path, err, errors.ErrUnsupported)
			return exit.Hint(exit.With(exit.Storage, err), "use --out with a folder on a local disk; without a socket, tasks come only from standard input, and rollout ctl cannot reach the run")
		}
	}
	return exit.With(exit.Storage, fmt.Errorf("%s: %w", path, err))
}

// Close removes the socket and ends Serve, which closes all connections.
func (l *Listener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.made) {
		_ = os.Remove(l.path) // if this fails, the stale socket is replaced later
	}
	if err := l.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
