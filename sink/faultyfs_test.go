package sink_test

import (
	"io/fs"
	"sync"

	"github.com/rollout-rl/rollout/sink"
)

// A hookFS calls before with each operation, reads included, and its paths. An error of before replaces
// the operation, except that a write writes half and a close closes.
type hookFS struct {
	sink.FS
	before func(op string, paths ...string) error
}

func (h hookFS) do(op string, act func() error, paths ...string) error {
	if err := h.before(op, paths...); err != nil {
		return err
	}
	return act()
}

func (h hookFS) file(op, name string, open func(string) (sink.File, error)) (sink.File, error) {
	if err := h.before(op, name); err != nil {
		return nil, err
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return hookFile{f, h, name}, nil
}

func (h hookFS) Create(name string) (sink.File, error) { return h.file("create", name, h.FS.Create) }

func (h hookFS) Open(name string) (sink.File, error) { return h.file("open", name, h.FS.Open) }

func (h hookFS) MkdirAll(name string) error {
	return h.do("mkdir", func() error { return h.FS.MkdirAll(name) }, name)
}

func (h hookFS) Rename(from, to string) error {
	return h.do("rename", func() error { return h.FS.Rename(from, to) }, from, to)
}

func (h hookFS) Link(from, to string) error {
	return h.do("link", func() error { return h.FS.Link(from, to) }, from, to)
}

func (h hookFS) Remove(name string) error {
	return h.do("remove", func() error { return h.FS.Remove(name) }, name)
}

func (h hookFS) SyncDir(name string) error {
	return h.do("syncdir", func() error { return h.FS.SyncDir(name) }, name)
}

func (h hookFS) ReadDir(name string) ([]string, error) {
	if err := h.before("readdir", name); err != nil {
		return nil, err
	}
	return h.FS.ReadDir(name)
}

func (h hookFS) Stat(name string) (fs.FileInfo, error) {
	if err := h.before("stat", name); err != nil {
		return nil, err
	}
	return h.FS.Stat(name)
}

type hookFile struct {
	sink.File
	fs   hookFS
	name string
}

func (f hookFile) Write(p []byte) (int, error) {
	if err := f.fs.before("write", f.name); err != nil {
		n, werr := f.File.Write(p[:len(p)/2])
		if werr != nil {
			return n, werr
		}
		return n, err
	}
	return f.File.Write(p)
}

func (f hookFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.before("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f hookFile) Sync() error { return f.fs.do("sync", f.File.Sync, f.name) }

func (f hookFile) Close() error {
	err := f.File.Close() // even on failure: tests must not leak files
	if ferr := f.fs.before("close", f.name); ferr != nil {
		return ferr
	}
	return err
}

// A faultyFS counts operations from 0. Operation at fails with err; if dead, all later ones fail too, as
// if the process was killed.
type faultyFS struct {
	hookFS
	at   int // negative: none
	err  error
	dead bool

	mu  sync.Mutex
	ops []string
}

func faulty(fs sink.FS, at int, err error) *faultyFS {
	f := &faultyFS{at: at, err: err}
	f.hookFS = hookFS{fs, f.count}
	return f
}

// Kill makes all later operations fail.
func (f *faultyFS) Kill(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.err, f.dead = len(f.ops), err, true
}

// Ops returns the operations so far.
func (f *faultyFS) Ops() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

func (f *faultyFS) count(op string, _ ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.ops)
	f.ops = append(f.ops, op)
	if f.at >= 0 && (n == f.at || n > f.at && f.dead) {
		return f.err
	}
	return nil
}
