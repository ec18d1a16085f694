package store

import (
	"io"
	"io/fs"
	"os"

	"github.com/rollout-rl/rollout/sink/durable"
)

// An FS is the set of file system operations that the package needs. The names of files and folders
// are operating system paths. Tests use an FS that fails or loses data.
type FS interface {
	// MkdirAll creates a folder and its parents.
	MkdirAll(name string) error
	// Create creates a file for writing. It fails if the file exists.
	Create(name string) (File, error)
	// Open opens a file for reading.
	Open(name string) (File, error)
	// Rename atomically moves a file within a file system.
	Rename(from, to string) error
	// Link gives a file a second name. If that name already exists, the error wraps fs.ErrExist.
	Link(from, to string) error
	// Remove deletes a file.
	Remove(name string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
	// ReadDir returns the names in a folder in sorted order.
	ReadDir(name string) ([]string, error)
	// Stat describes a file or folder.
	Stat(name string) (fs.FileInfo, error)
}

// A File is an open file.
type File interface {
	io.Writer
	io.ReaderAt
	io.Closer
	// Sync makes the content durable.
	Sync() error
	// Size returns the number of bytes.
	Size() (int64, error)
}

// OS returns the file system of the operating system.
func OS() FS { return OSMode(0o666) }

// OSMode is like OS, but new files get the given mode, before the umask. All users who can read new
// files can also list and enter new folders.
func OSMode(mode fs.FileMode) FS { return osFS{mode} }

type osFS struct{ mode fs.FileMode }

type osFile struct{ *os.File }

func (f osFS) MkdirAll(name string) error                   { return os.MkdirAll(name, f.mode|f.mode&0o444>>2) }
func (osFS) Rename(from, to string) error                   { return os.Rename(from, to) }
func (osFS) Link(from, to string) error                     { return os.Link(from, to) }
func (osFS) Remove(name string) error                       { return os.Remove(name) }
func (osFS) SyncDir(name string) error                      { return durable.SyncDir(name) }
func (osFS) Stat(name string) (info fs.FileInfo, err error) { return os.Stat(name) }

func (f osFS) Create(name string) (File, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, f.mode)
	if err != nil {
		return nil, err
	}
	return osFile{file}, nil
}

func (osFS) Open(name string) (File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) ReadDir(name string) ([]string, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
