package sink_test

import (
	"sync"

	"github.com/rollout-rl/rollout/sink"
)

// faultyFS is a file system that fails at one operation. It counts all operations, including reads, from
// 0. A write is one operation and fails halfway.
type faultyFS struct {
	FS sink.FS
	// At is the operation that fails with Err; negative means none. If Dead, all later operations
	// fail too, as if the process was killed.
	At   int
	Err  error
	Dead bool

	mu  sync.Mutex
	n   int
	ops []string
}

// Ops returns the operations so far.
func (f *faultyFS) Ops() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

func (f *faultyFS) fail(op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.n
	f.n++
	f.ops = append(f.ops, op)
	if f.At >= 0 && (n == f.At || n > f.At && f.Dead) {
		return f.Err
	}
	return nil
}

// MkdirAll makes a folder and its parents.
func (f *faultyFS) MkdirAll(name string) error {
	if err := f.fail("mkdir"); err != nil {
		return err
	}
	return f.FS.MkdirAll(name)
}

// Create makes a new file.
func (f *faultyFS) Create(name string) (sink.File, error) {
	if err := f.fail("create"); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file, f}, nil
}

// Open opens a file for reading.
func (f *faultyFS) Open(name string) (sink.File, error) {
	if err := f.fail("open"); err != nil {
		return nil, err
	}
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file, f}, nil
}

// Rename moves a file.
func (f *faultyFS) Rename(from, to string) error {
	if err := f.fail("rename"); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

// Link gives a file a second name.
func (f *faultyFS) Link(from, to string) error {
	if err := f.fail("link"); err != nil {
		return err
	}
	return f.FS.Link(from, to)
}

// Remove deletes a file.
func (f *faultyFS) Remove(name string) error {
	if err := f.fail("remove"); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// SyncDir makes the names in a folder durable.
func (f *faultyFS) SyncDir(name string) error {
	if err := f.fail("syncdir"); err != nil {
		return err
	}
	return f.FS.SyncDir(name)
}

// ReadDir returns the names in a folder.
func (f *faultyFS) ReadDir(name string) ([]string, error) {
	if err := f.fail("readdir"); err != nil {
		return nil, err
	}
	return f.FS.ReadDir(name)
}

type faultyFile struct {
	sink.File
	faults *faultyFS
}

func (f *faultyFile) Write(p []byte) (int, error) {
	if err := f.faults.fail("write"); err != nil {
		n, werr := f.File.Write(p[:len(p)/2])
		if werr != nil {
			return n, werr
		}
		return n, err
	}
	return f.File.Write(p)
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.faults.fail("read"); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultyFile) Sync() error {
	if err := f.faults.fail("sync"); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) Close() error {
	err := f.File.Close() // even on failure: tests must not leak files
	if ferr := f.faults.fail("close"); ferr != nil {
		return ferr
	}
	return err
}
