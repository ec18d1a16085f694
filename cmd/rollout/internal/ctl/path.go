package ctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Name is the file name of the socket.
const Name = "ctl.sock"

// maxPath is the maximum length, in bytes, of a socket address that works on every system.
// sockaddr_un has 108 bytes for the address on Linux and 104 elsewhere, including a terminating
// zero.
const maxPath = 100

// Path returns the path of the socket of the run in dir.
func Path(dir string) string { return filepath.Join(dir, Name) }

// within calls the function use with an address for the socket called name in dir. The address is
// short enough for a socket, and is valid until use returns.
func within(dir, name string, use func(address string) error) error {
	if path := filepath.Join(dir, name); len(path) <= maxPath {
		return use(path)
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close() //nolint:errcheck // read only
	if short := fmt.Sprintf("/proc/self/fd/%d", folder.Fd()); same(folder, short) {
		return use(filepath.Join(short, name))
	}
	return linked(dir, name, use) // the system is not Linux, or has no /proc
}

// linked does the same as within, but uses a symbolic link in the folder for temporary files.
func linked(dir, name string, use func(address string) error) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	at, err := os.MkdirTemp("", "ctl-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(at) //nolint:errcheck // a link left behind points to a folder of this run
	short := filepath.Join(at, "r")
	if err := os.Symlink(dir, short); err != nil {
		return err
	}
	if path := filepath.Join(short, name); len(path) > maxPath {
		return fmt.Errorf("%s: the path is too long for a socket, and so is %s", filepath.Join(dir, name), path)
	}
	return use(filepath.Join(short, name))
}

func same(folder *os.File, path string) bool {
	a, err := folder.Stat()
	b, err2 := os.Stat(path)
	return errors.Join(err, err2) == nil && os.SameFile(a, b)
}
