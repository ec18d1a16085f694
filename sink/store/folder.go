package store

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/sink/failpoint"
)

// tempPrefix begins the names of files that are being written. They are not objects.
const tempPrefix = ".tmp-"

// A folder is a Store whose objects are files.
type folder struct {
	dir string
	fs  FS
}

func (f *folder) String() string { return f.dir }

func (f *folder) Sub(prefix string) Store { return Folder(f.fs, f.path(prefix)) }

func (f *folder) path(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

// do calls act with the file of a name.
func (f *folder) do(op, name string, act func(path string) error) error {
	path := f.path(name)
	err := checkName(name)
	if err == nil {
		err = act(path)
	}
	return f.fail(op, path, err)
}

// fail returns an *Error, or nil if err is nil.
func (f *folder) fail(op, path string, err error) error {
	if err == nil {
		return nil
	}
	// An *fs.PathError would repeat the path and the operation.
	if p, ok := errors.AsType[*fs.PathError](err); ok && err == error(p) && p.Path == path {
		err = p.Err
	}
	return &Error{Path: path, Op: op, Err: err}
}

func (f *folder) PutNew(name string, body []byte) error {
	return f.do("put", name, func(path string) error {
		err := f.putIfAbsent(path, body, failpoint.Hit)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		// On a network file system, the answer to a successful link can be lost. The client of the
		// file system then repeats the link and finds that the name exists.
		switch got, err := f.read(path); {
		case err != nil:
			return err
		case !bytes.Equal(got, body):
			return fs.ErrExist
		}
		return f.fs.SyncDir(filepath.Dir(path))
	})
}

// putIfAbsent durably creates a file. It calls the function hit after each step.
func (f *folder) putIfAbsent(path string, body []byte, hit func(failpoint.Name)) error {
	dir := filepath.Dir(path)
	temp := filepath.Join(dir, tempPrefix+rand.Text()+".json")
	err := f.writeSynced(temp, bytes.NewReader(body))
	if err == nil {
		hit(failpoint.CommitWritten)
		err = f.fs.Link(temp, path)
	}
	if err == nil {
		hit(failpoint.CommitLinked)
	}
	_ = f.fs.Remove(temp) // readers ignore a leftover
	if err != nil {
		return err
	}
	if err := f.fs.SyncDir(dir); err != nil {
		return err
	}
	hit(failpoint.CommitSynced)
	return nil
}

// writeSynced writes and syncs a new file with the given content. If its folder is missing,
// writeSynced creates it.
func (f *folder) writeSynced(path string, body io.Reader) error {
	file, err := f.fs.Create(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = f.makeFolders(filepath.Dir(path)); err == nil {
			file, err = f.fs.Create(path)
		}
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(file, body)
	if err == nil {
		err = file.Sync()
	}
	closeInto(file, &err)
	return err
}

// makeFolders durably creates a folder and its parents.
func (f *folder) makeFolders(dir string) error {
	var parents []string // of folders that do not exist
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := f.fs.Stat(d); err == nil || filepath.Dir(d) == d {
			break
		}
		parents = append(parents, filepath.Dir(d))
	}
	if err := f.fs.MkdirAll(dir); err != nil {
		return err
	}
	for _, d := range parents {
		if err := f.fs.SyncDir(d); err != nil {
			return err
		}
	}
	return nil
}

func (f *folder) PutFile(name, file string, _ [sha256.Size]byte) error {
	return f.do("put", name, func(path string) error {
		err := f.fs.Rename(file, path)
		if errors.Is(err, fs.ErrNotExist) {
			if err = f.makeFolders(filepath.Dir(path)); err == nil {
				err = f.fs.Rename(file, path)
			}
		}
		if errors.Is(err, syscall.EXDEV) { // the file is on another file system
			err = f.copyFile(file, path)
		}
		if err != nil {
			return err
		}
		failpoint.Hit(failpoint.ShardRenamed)
		return f.fs.SyncDir(filepath.Dir(path))
	})
}

// copyFile durably copies a file, gives the copy its name, and removes the file.
func (f *folder) copyFile(from, to string) (err error) {
	source, err := f.open(from)
	if err != nil {
		return err
	}
	defer closeInto(source, &err)
	temp := filepath.Join(filepath.Dir(to), tempPrefix+rand.Text())
	err = f.writeSynced(temp, io.NewSectionReader(source, 0, source.size))
	if err == nil {
		err = f.fs.Rename(temp, to)
	}
	if err != nil {
		_ = f.fs.Remove(temp) // readers ignore a leftover
		return err
	}
	return f.fs.Remove(from)
}

func (f *folder) Put(name string, body []byte) error {
	return f.do("put", name, func(path string) error {
		temp := filepath.Join(filepath.Dir(path), tempPrefix+filepath.Base(path)+"-"+rand.Text())
		err := f.writeSynced(temp, bytes.NewReader(body))
		if err == nil {
			err = f.fs.Rename(temp, path)
		}
		if err != nil {
			_ = f.fs.Remove(temp) // readers ignore a leftover
			return err
		}
		return f.fs.SyncDir(filepath.Dir(path))
	})
}

func (f *folder) Get(name string) (body []byte, err error) {
	err = f.do("read", name, func(path string) error {
		body, err = f.read(path)
		return err
	})
	return body, err
}

func (f *folder) read(path string) (body []byte, err error) {
	o, err := f.open(path)
	if err != nil {
		return nil, err
	}
	defer closeInto(o, &err)
	body = make([]byte, o.size)
	_, err = io.ReadFull(io.NewSectionReader(o, 0, o.size), body)
	return body, err
}

// A sizedFile is a file whose size is known.
type sizedFile struct {
	File
	size int64
}

func (f sizedFile) Size() int64  { return f.size }
func (sizedFile) SHA256() string { return "" }

func (f *folder) Open(name string) (o Object, err error) {
	err = f.do("read", name, func(path string) error {
		file, err := f.open(path)
		if err == nil {
			o = file
		}
		return err
	})
	return o, err
}

func (f *folder) open(path string) (sizedFile, error) {
	file, err := f.fs.Open(path)
	if err != nil {
		return sizedFile{}, err
	}
	size, err := file.Size()
	if err != nil {
		return sizedFile{}, errors.Join(err, file.Close())
	}
	return sizedFile{file, size}, nil
}

func (f *folder) Delete(name string) error {
	return f.do("delete", name, func(path string) error {
		// The removal is not synced. An object that reappears after a power failure does no harm.
		if err := f.fs.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func (f *folder) Now() (now time.Time, err error) {
	err = f.do("put", tempPrefix+rand.Text(), func(path string) error {
		err := f.writeSynced(path, bytes.NewReader(nil))
		if err == nil {
			var info fs.FileInfo
			if info, err = f.fs.Stat(path); err == nil {
				now = info.ModTime()
			}
		}
		_ = f.fs.Remove(path) // readers ignore a leftover
		return err
	})
	return now, err
}

func (f *folder) List(prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		dir := prefix[:strings.LastIndexByte(prefix, '/')+1]
		f.walk(dir, prefix, after, func(i Info, err error) bool { return yield(i, err) && err == nil })
	}
}

// walk yields the files of List below a folder. dir is "" or ends with a slash.
func (f *folder) walk(dir, prefix, after string, yield func(Info, error) bool) bool {
	names, err := f.fs.ReadDir(f.path(dir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return true
	}
	if err != nil {
		return yield(Info{}, f.fail("list", f.path(dir), err))
	}
	var found []Info // a folder has a name that ends with a slash, for the order: a-b, a/b
	for _, name := range names {
		path := dir + name
		// All names in a folder are below path+"0", because "0" follows "/".
		if strings.HasPrefix(name, tempPrefix) || !strings.HasPrefix(path, prefix) || path+"0" <= after {
			continue
		}
		info, err := f.fs.Stat(f.path(path))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// It was deleted in the meantime.
		case err != nil:
			return yield(Info{}, f.fail("list", f.path(path), err))
		case info.IsDir():
			found = append(found, Info{Name: path + "/"})
		case path > after:
			found = append(found, Info{path, info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(found, func(a, b Info) int { return cmp.Compare(a.Name, b.Name) })
	for _, i := range found {
		more := false
		if strings.HasSuffix(i.Name, "/") {
			more = f.walk(i.Name, prefix, after, yield)
		} else {
			more = yield(i, nil)
		}
		if !more {
			return false
		}
	}
	return true
}

// probe checks that the folder supports hard links. The alternatives are unsafe. If a file is created
// under its final name, a crash can leave it half-written. A rename overwrites an existing file.
func (f *folder) probe() error {
	path := f.path(tempPrefix + rand.Text())
	err := f.putIfAbsent(path, nil, func(failpoint.Name) {})
	if rerr := f.fs.Remove(path); err == nil {
		err = rerr
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPERM), errors.Is(err, errors.ErrUnsupported): // Linux returns EPERM
		// Do not wrap err, because its EPERM would match fs.ErrPermission although no permission is
		// missing.
		err = fmt.Errorf("%w (%s): use a file system that supports hard links", ErrNoLinks, err.Error())
	}
	return &Error{Path: f.dir, Op: "probe", Err: err}
}
