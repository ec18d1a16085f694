package ctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Name is the name of the socket in the folder of a run.
const Name = "ctl.sock"

// maxPath is how many bytes the address of a socket may have everywhere. The fields of
// sockaddr_un have 108 bytes on Linux and 104 elsewhere, with a zero at the end.
const maxPath = 100

// Path is where the socket of the run in dir lies.
func Path(dir string) string { return filepath.Join(dir, Name) }

// within calls use with an address of name in the folder dir that is short enough for a
// socket. The address is valid until use returns.
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
	return linked(dir, name, use) // not Linux, or without /proc
}

// linked is within by a link in the folder for temporary files.
func linked(dir, name string, use func(address string) error) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	at, err := os.MkdirTemp("", "ctl-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(at) //nolint:errcheck // a link that is left leads to a folder of ours
	short := filepath.Join(at, "r")
	if err := os.Symlink(dir, short); err != nil {
		return err
	}
	if path := filepath.Join(short, name); len(path) > maxPath {
		return fmt.Errorf("%s: too long for a socket, and so is %s", filepath.Join(dir, name), path)
	}
	return use(filepath.Join(short, name))
}

// same reports whether path leads to the open folder.
func same(folder *os.File, path string) bool {
	a, err := folder.Stat()
	b, err2 := os.Stat(path)
	return errors.Join(err, err2) == nil && os.SameFile(a, b)
}
