package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// A faultMode is what happens at the chosen operation of a faultDisk.
type faultMode string

const (
	faultNone faultMode = "none"
	faultKill faultMode = "kill" // the operation is not finished, and no later one begins
	faultOnce faultMode = "once" // the operation fails
	faultFull faultMode = "full" // the operation and all later ones fail
)

// A faultDisk changes a real folder, and knows what a power failure would leave of it. It is as bad as
// a file system may be: what was not synced can be lost in part and in any order, and after a failed
// sync the lost bytes are never written.
type faultDisk struct {
	mode faultMode
	at   int      // the number of the chosen operation, from 0
	ops  []string // the operations so far

	names   map[string]*image // by path
	durable map[string]*image // the names that a power failure leaves
	renamed map[string]string // the old and the new paths of renames that are not durable
}

// An image is what the disk contains of a file.
type image struct {
	synced  []byte
	pending []change
}

// A change is a write at an offset, or sets the length of the file if bytes is nil.
type change struct {
	at    int64
	bytes []byte
}

func apply(b []byte, c change) []byte {
	end := int(c.at) + len(c.bytes)
	if c.bytes == nil || end > len(b) {
		b = append(b, make([]byte, max(0, end-len(b)))...)[:end]
	}
	copy(b[c.at:], c.bytes)
	return b
}

func newFaultDisk(mode faultMode, at int) *faultDisk {
	return &faultDisk{mode: mode, at: at, names: map[string]*image{}, durable: map[string]*image{}, renamed: map[string]string{}}
}

var (
	errFull   = &fs.PathError{Op: "write", Err: syscall.ENOSPC}
	errKilled = errors.New("killed")
)

// step returns the error of the next operation.
func (d *faultDisk) step(op, path string) error {
	n := len(d.ops)
	d.ops = append(d.ops, op+" "+filepath.Base(filepath.Dir(path)))
	switch {
	case d.mode == faultKill && n >= d.at:
		return errKilled
	case d.mode == faultOnce && n == d.at, d.mode == faultFull && n >= d.at:
		return errFull
	}
	return nil
}

func (d *faultDisk) disk() disk {
	under := osDisk()
	return disk{
		create: func(path string, mode fs.FileMode) (*os.File, error) {
			if err := d.step("create", path); err != nil {
				return nil, err
			}
			d.names[path] = new(image)
			return under.create(path, mode)
		},
		write: func(f *os.File, b []byte, at int64) (int, error) {
			n := len(d.ops)
			err := d.step("write", f.Name())
			if err != nil {
				b = b[:len(b)/2]
			}
			if err != errKilled || n == d.at { // the process was killed while it wrote
				d.change(f, change{at, append([]byte{}, b...)})
				_, _ = f.WriteAt(b, at)
			}
			return len(b), err
		},
		truncate: func(f *os.File, size int64) error {
			if err := d.step("truncate", f.Name()); err != nil {
				return err
			}
			d.change(f, change{at: size})
			return under.truncate(f, size)
		},
		sync: func(f *os.File) error {
			err := d.step("sync", f.Name())
			img := d.names[f.Name()]
			if err == nil {
				for _, c := range img.pending {
					img.synced = apply(img.synced, c)
				}
			}
			if err != errKilled {
				img.pending = nil
			}
			return err
		},
		rename: func(from, to string) error {
			if err := d.step("rename", to); err != nil {
				return err
			}
			d.names[to], d.renamed[from] = d.names[from], to
			delete(d.names, from)
			return under.rename(from, to)
		},
		remove: func(path string) error {
			if err := d.step("remove", path); err != nil {
				return err
			}
			delete(d.names, path)
			return under.remove(path)
		},
		syncDir: func(dir string) error {
			if err := d.step("sync folder", filepath.Join(dir, "x")); err != nil {
				return err
			}
			for path := range d.all() {
				if filepath.Dir(path) == dir {
					d.keep(path)
					delete(d.renamed, path)
				}
			}
			return nil
		},
	}
}

func (d *faultDisk) change(f *os.File, c change) {
	img := d.names[f.Name()]
	img.pending = append(img.pending, c)
}

// cut returns what a power failure leaves of the file: its length and each of its sectors are as they
// were after the last sync or after any later change.
func (img *image) cut(r *rand.Rand) []byte {
	const sector = 512
	states := [][]byte{img.synced}
	for _, c := range img.pending {
		states = append(states, apply(bytes.Clone(states[len(states)-1]), c))
	}
	left := make([]byte, len(states[r.IntN(len(states))]))
	for at := 0; at < len(left); at += sector {
		if state := states[r.IntN(len(states))]; at < len(state) {
			copy(left[at:min(at+sector, len(left))], state[at:])
		}
	}
	return left
}

// all returns the paths that have or had a name.
func (d *faultDisk) all() map[string]bool {
	all := map[string]bool{}
	for path := range d.names {
		all[path] = true
	}
	for path := range d.durable {
		all[path] = true
	}
	return all
}

// keep makes the name, or its absence, durable.
func (d *faultDisk) keep(path string) {
	if img := d.names[path]; img != nil {
		d.durable[path] = img
	} else {
		delete(d.durable, path)
	}
}

// cut changes the folder to what a power failure leaves. r chooses which of the changes that were not
// synced are kept.
func (d *faultDisk) cut(tb testing.TB, r *rand.Rand) {
	tb.Helper()
	paths := []string{}
	for path := range d.all() {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	slices.Reverse(paths) // sealed/ before open/: a rename never loses both names
	for _, path := range paths {
		to, moved := d.renamed[path]
		if moved && d.durable[to] != d.names[to] {
			continue
		}
		if r.IntN(2) == 0 {
			d.keep(path)
		}
	}
	for _, path := range paths {
		_ = os.Remove(path)
	}
	d.names = map[string]*image{}
	for path, img := range d.durable {
		now := &image{synced: img.cut(r)}
		d.names[path] = now
		if err := os.WriteFile(path, now.synced, 0o666); err != nil {
			tb.Fatal(err)
		}
	}
	d.durable = maps.Clone(d.names)
	d.renamed = map[string]string{}
}

func (d *faultDisk) String() string {
	if d.at >= 0 && d.at < len(d.ops) {
		return fmt.Sprintf("%s at operation %d (%s)", d.mode, d.at, d.ops[d.at])
	}
	return string(d.mode)
}
