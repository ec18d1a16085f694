package ctl_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

func TestPaths(t *testing.T) {
	t.Parallel()
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 100), strings.Repeat("f", 100))
	must(t, os.MkdirAll(long, 0o755))
	serve(t, long, &run{}, 0)
	if err := dial(t, long).Do(ctl.Request{Op: ctl.OpPause}, nil); err != nil {
		t.Errorf("a path of %d bytes: %v", len(ctl.Path(long)), err)
	}
	info, err := os.Lstat(ctl.Path(long))
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	entries, err := os.ReadDir(long)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// Without /proc, the path uses a link, which is removed afterwards.
func TestLinked(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 200))
	must(t, os.Mkdir(long, 0o755))
	serve(t, long, &run{}, 0)
	err := ctl.Linked(long, ctl.Name, func(address string) error {
		if len(address) > 100 {
			t.Errorf("the address %q has %d bytes", address, len(address))
		}
		conn, err := net.Dial("unix", address)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	t.Setenv("TMPDIR", long)
	if err := ctl.Linked(long, ctl.Name, func(string) error { return nil }); err == nil {
		t.Error("no complaint about a folder for temporary files with a long path")
	}
}

// The socket of a killed process is replaced. A file of another kind is not.
func TestStale(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: ctl.Path(dir), Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := ctl.Dial(t.Context(), dir); exit.Code(err) != exit.Unusable || exit.HintOf(err) == "" {
		t.Errorf("dialing a stale socket: %v", err)
	}
	serve(t, dir, &run{}, 0)
	must(t, dial(t, dir).Do(ctl.Request{Op: ctl.OpPause}, nil))
	for _, put := range []func(string) error{
		func(path string) error { return os.WriteFile(path, []byte("mine"), 0o644) },
		func(path string) error { return os.Mkdir(path, 0o755) },
		func(path string) error { return os.Symlink("elsewhere", path) },
	} {
		dir := t.TempDir()
		must(t, put(ctl.Path(dir)))
		if _, err := ctl.Listen(dir); exit.Code(err) != exit.Folder || exit.HintOf(err) == "" {
			t.Errorf("in place of something else: %v", err)
		}
	}
}

// On a file system without sockets, the error has a remedy. mknod(2) returns EPERM in that case,
// and EACCES for missing permissions.
func TestNoSockets(t *testing.T) {
	t.Parallel()
	const dir = "/proc/self/fdinfo"
	if _, err := os.Stat(dir); err == nil {
		if _, err := ctl.Listen(dir); exit.Code(err) != exit.Storage || !strings.Contains(err.Error(), ctl.Path(dir)) {
			t.Errorf("Listen in %s = %v", dir, err)
		}
	}
	for no, want := range map[syscall.Errno]bool{syscall.EPERM: true, syscall.EOPNOTSUPP: true, syscall.EACCES: false, syscall.ENOSPC: false} {
		err := ctl.Unbound("run/ctl.sock", &net.OpError{Op: "listen", Addr: &net.UnixAddr{Name: "/proc/self/fd/9/x"}, Err: os.NewSyscallError("bind", no)})
		if errors.Is(err, errors.ErrUnsupported) != want || (exit.HintOf(err) != "") != want || exit.Code(err) != exit.Storage || strings.Contains(err.Error(), "/proc") {
			t.Errorf("%v: %v, hint %q", no, err, exit.HintOf(err))
		}
	}
}

func TestNoCollector(t *testing.T) {
	t.Parallel()
	_, err := ctl.Dial(t.Context(), t.TempDir())
	if exit.Code(err) != exit.Unusable || !strings.Contains(exit.HintOf(err), "--resume") {
		t.Errorf("Dial = %v, hint %q", err, exit.HintOf(err))
	}
}
