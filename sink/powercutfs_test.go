package sink_test

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing/fstest"

	"github.com/rollout-rl/rollout/sink"
)

// errPower is the error of every operation after the power failure.
var errPower = errors.New("power failure")

// sector is the smallest unit that a disk writes as a whole.
const sector = 512

// A PowerCut is an in-memory file system that can lose whatever was not synced: file contents without
// File.Sync, names without SyncDir. At a power failure the seed decides whether each unsynced name and
// sector survives.
//
// It has one root folder and whatever is created in it.
type powerCut struct {
	mu    sync.Mutex
	rng   *rand.Rand
	root  string
	names map[string]*inode // as processes see them
	disk  map[string]*inode // as they were synced
	cutAt int               // -1: never
	boot  int               // files opened in an earlier boot are closed
	steps []string
}

// An inode is a file or a folder.
type inode struct {
	folder bool
	data   []byte
	synced int // durable length; files only grow
}

// newPowerCut returns a file system with the empty folder root.
func newPowerCut(root string, seed uint64) *powerCut {
	folder := &inode{folder: true}
	return &powerCut{
		rng: rand.New(rand.NewPCG(seed, 1)), root: root, cutAt: -1,
		names: map[string]*inode{root: folder}, disk: map[string]*inode{root: folder},
	}
}

// CutAt cuts the power at the nth operation from now, counted from 0. That operation can still take
// effect, in part or in full, but returns ErrPower.
func (p *powerCut) CutAt(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps, p.cutAt = nil, n
}

// Steps returns the operations since the last CutAt or Restart.
func (p *powerCut) Steps() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.steps)
}

// Kill restarts only the process: the operating system keeps all data, synced or not.
func (p *powerCut) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.boot++
	p.steps, p.cutAt = nil, -1
}

// Restart brings the power back. The bytes that survived on disk are durable until they are written again.
func (p *powerCut) Restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.boot++
	p.steps, p.cutAt = nil, -1

	union := maps.Clone(p.names)
	maps.Copy(union, p.disk)
	all := slices.Sorted(maps.Keys(union)) // for reproducible seeds; folders sort before their content
	left := map[string]*inode{}
	for _, name := range all {
		node := p.disk[name]
		if now := p.names[name]; now != node && p.rng.IntN(2) == 0 {
			node = now
		}
		if node != nil && (name == p.root || left[filepath.Dir(name)] != nil) {
			left[name] = node
		}
	}
	seen := map[*inode]bool{}
	for _, name := range all {
		if node := left[name]; node != nil && !seen[node] {
			seen[node] = true
			node.tear(p.rng)
		}
	}
	p.names, p.disk = left, maps.Clone(left)
}

// tear decides what survives of the unsynced bytes: all, none, a part, or a part with zeroed sectors.
func (n *inode) tear(rng *rand.Rand) {
	tail := len(n.data) - n.synced
	switch rng.IntN(4) {
	case 0:
		n.data = n.data[:n.synced]
	case 1:
	default:
		n.data = slices.Clone(n.data[:n.synced+rng.IntN(tail+1)])
		if rng.IntN(2) == 0 {
			break
		}
		for at := n.synced; at < len(n.data); {
			end := min((at/sector+1)*sector, len(n.data))
			if rng.IntN(2) == 0 {
				clear(n.data[at:end])
			}
			at = end
		}
	}
	n.synced = len(n.data)
}

// Dump writes the files, as processes see them, to a folder of the operating system.
func (p *powerCut) Dump(dir string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.names)) {
		rel, err := filepath.Rel(p.root, name)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		if p.names[name].folder {
			err = os.MkdirAll(to, 0o777)
		} else {
			err = os.WriteFile(to, p.names[name].data, 0o666)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// step begins an operation. happens reports whether it takes effect; err is its result.
func (p *powerCut) step(op string) (happens bool, err error) {
	n := len(p.steps)
	p.steps = append(p.steps, op)
	if p.cutAt < 0 || n < p.cutAt {
		return true, nil
	}
	return n == p.cutAt && p.rng.IntN(2) == 0, errPower
}

// do runs an operation under the lock.
func (p *powerCut) do(op, name string, act func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	happens, err := p.step(op)
	if happens {
		if aerr := act(); err == nil {
			err = aerr
		}
	}
	if err == nil || errors.Is(err, errPower) {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (p *powerCut) MkdirAll(name string) error {
	return p.do("mkdir", name, func() error {
		for ; p.names[name] == nil; name = filepath.Dir(name) {
			p.names[name] = &inode{folder: true}
		}
		return nil
	})
}

// file runs an operation that opens a file.
func (p *powerCut) file(op, name string, act func() error) (f sink.File, err error) {
	err = p.do(op, name, func() error {
		if err := act(); err != nil {
			return err
		}
		f = &powerFile{p, p.names[name], p.boot}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (p *powerCut) Create(name string) (sink.File, error) {
	return p.file("create", name, func() error {
		if p.names[name] != nil {
			return fs.ErrExist
		}
		if err := p.exists(filepath.Dir(name)); err != nil {
			return err
		}
		p.names[name] = &inode{}
		return nil
	})
}

func (p *powerCut) Open(name string) (sink.File, error) {
	return p.file("open", name, func() error { return p.exists(name) })
}

// exists returns fs.ErrNotExist unless all names exist.
func (p *powerCut) exists(names ...string) error {
	for _, name := range names {
		if p.names[name] == nil {
			return fs.ErrNotExist
		}
	}
	return nil
}

func (p *powerCut) Rename(from, to string) error {
	return p.do("rename", from, func() error {
		if err := p.exists(from, filepath.Dir(to)); err != nil {
			return err
		}
		p.names[to] = p.names[from]
		delete(p.names, from)
		return nil
	})
}

func (p *powerCut) Link(from, to string) error {
	return p.do("link", from, func() error {
		if err := p.exists(from, filepath.Dir(to)); err != nil {
			return err
		}
		if p.names[to] != nil {
			return fs.ErrExist
		}
		p.names[to] = p.names[from]
		return nil
	})
}

func (p *powerCut) Remove(name string) error {
	return p.do("remove", name, func() error {
		err := p.exists(name)
		delete(p.names, name)
		return err
	})
}

func (p *powerCut) SyncDir(name string) error {
	return p.do("syncdir", name, func() error {
		if err := p.exists(name); err != nil {
			return err
		}
		maps.DeleteFunc(p.disk, func(path string, _ *inode) bool { return path != p.root && filepath.Dir(path) == name })
		for path, node := range p.names {
			if path != p.root && filepath.Dir(path) == name {
				p.disk[path] = node
			}
		}
		return nil
	})
}

func (p *powerCut) Stat(name string) (info fs.FileInfo, err error) {
	err = p.do("stat", name, func() error {
		if err := p.exists(name); err != nil {
			return err
		}
		base, file := filepath.Base(name), &fstest.MapFile{Data: p.names[name].data}
		if p.names[name].folder {
			file.Mode = fs.ModeDir
		}
		info, err = fstest.MapFS{base: file}.Stat(base)
		return err
	})
	return info, err
}

func (p *powerCut) ReadDir(name string) (names []string, err error) {
	err = p.do("readdir", name, func() error {
		for path := range p.names {
			if path != p.root && filepath.Dir(path) == name {
				names = append(names, filepath.Base(path))
			}
		}
		slices.Sort(names)
		return p.exists(name)
	})
	return names, err
}

// A powerFile is an open file of a PowerCut.
type powerFile struct {
	p    *powerCut
	node *inode
	boot int
}

func (f *powerFile) do(op string, act func() error) error {
	return f.p.do(op, "", func() error {
		if f.boot != f.p.boot {
			return errPower
		}
		return act()
	})
}

func (f *powerFile) Write(b []byte) (n int, err error) {
	err = f.do("write", func() error {
		n = len(b)
		f.node.data = append(f.node.data, b...)
		return nil
	})
	return n, err
}

func (f *powerFile) ReadAt(b []byte, off int64) (n int, err error) {
	eof := false
	err = f.do("read", func() error {
		if off < int64(len(f.node.data)) {
			n = copy(b, f.node.data[off:])
		}
		eof = n < len(b)
		return nil
	})
	if err == nil && eof {
		err = io.EOF
	}
	return n, err
}

func (f *powerFile) Sync() error {
	return f.do("sync", func() error {
		f.node.synced = len(f.node.data)
		return nil
	})
}

func (f *powerFile) Close() error { return f.do("close", func() error { return nil }) }

func (f *powerFile) Size() (n int64, err error) {
	err = f.do("size", func() error {
		n = int64(len(f.node.data))
		return nil
	})
	return n, err
}
