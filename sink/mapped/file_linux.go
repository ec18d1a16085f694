//go:build !purego

package mapped

import (
	"os"

	"golang.org/x/sys/unix"
)

const canMap = true

// mapFile writes raw to an unnamed file in dir and maps the file for reading. If that fails,
// mapFile returns nil.
func mapFile(dir string, raw []byte) []byte {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "index")
	defer func() { _ = f.Close() }() // the mapping keeps the file alive
	if _, err := f.Write(raw); err != nil {
		return nil
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, len(raw), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	return mem
}

func unmap(mem []byte) { _ = unix.Munmap(mem) } // a mapping from mapFile can always be removed
