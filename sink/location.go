package sink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/sink/store"
)

// A location contains the files of a dataset. Its shards and entries are objects of a store. The
// other files are in a local folder: the write-ahead log, files that are being written, and files
// that were set aside. The store is the local folder, which also contains the dataset card and
// ack.json, or a bucket.
type location struct {
	objects store.Store
	// folder is true if the store is the local folder. Merges then move replaced files to
	// replaced/. In a bucket, replaced files stay in place.
	folder bool
	fs     FS
	dir    string // the local folder; empty for a reader without local files
	chunk  int64  // the number of bytes of one read of a committed file
	// byRange is set for a reader of single rows. checked then uses a rangedFile if possible, and
	// does not check a local file again.
	byRange bool
	intact  *intact // the local files that were checked; nil if each reading checks
}

// locate returns the location with the given store and local folder. If the store is nil, it is the
// local folder.
func locate(objects store.Store, fsys FS, dir string) location {
	if fsys == nil {
		fsys = OS()
	}
	if objects == nil {
		return location{objects: store.Folder(fsys, dir), folder: true, fs: fsys, dir: dir, chunk: readChunk}
	}
	return location{objects: objects, fs: fsys, dir: dir, chunk: fetchChunk}
}

// localDirs returns the subfolders of the local folder.
func (p *location) localDirs() []string {
	if p.folder {
		return []string{dataDir, failuresDir, commitsDir, walDir}
	}
	return []string{dataDir, failuresDir, walDir}
}

// makeFolders durably creates the subfolders of the local folder, which must exist. If they will
// contain the log, makeFolders checks that commits are possible.
func (p *location) makeFolders(runID string) error {
	names, err := p.fs.ReadDir(p.dir)
	if err != nil {
		return &ShardError{Path: p.dir, Op: "open", Err: err}
	}
	if err := p.checkTag(names, runID); err != nil {
		return err
	}
	for _, sub := range p.localDirs() {
		if err := p.fs.MkdirAll(filepath.Join(p.dir, sub)); err != nil {
			return &ShardError{Path: p.dir, Op: "create", Err: err}
		}
	}
	if err := p.fs.SyncDir(p.dir); err != nil {
		return &ShardError{Path: p.dir, Op: "sync", Err: err}
	}
	if p.folder {
		if err := store.Probe(store.Folder(p.fs, filepath.Join(p.dir, commitsDir))); err != nil {
			return shardError("link", err)
		}
	}
	return nil
}

// open opens a committed file. A merge can have moved it to replaced/.
func (p *location) open(path string) (store.Object, error) {
	o, err := p.objects.Open(path)
	if p.folder && errors.Is(err, fs.ErrNotExist) {
		if moved, merr := p.objects.Open(replacedDir + "/" + path); !errors.Is(merr, fs.ErrNotExist) {
			o, err = moved, merr
		}
	}
	return o, asPath(err)
}

// filesIn returns the committed files in a folder of the dataset, in the order of their names. For
// the local folder, this is one operation. The sizes are then unknown, and temporary files and
// subfolders are included. For a bucket, filesIn returns only the files after the given name, and
// files in subfolders are included.
func (p *location) filesIn(folder, after string) (found []store.Info, err error) {
	if p.folder {
		names, err := p.fs.ReadDir(filepath.Join(p.dir, folder))
		for _, name := range names {
			found = append(found, store.Info{Name: folder + "/" + name})
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return found, err
	}
	for i, err := range p.objects.List(folder+"/", after) {
		if err != nil {
			return nil, asPath(err)
		}
		found = append(found, i)
	}
	return found, nil
}

// readHead returns at most the first n bytes of an object.
func readHead(objects store.Store, name string, n int) ([]byte, error) {
	o, err := objects.Open(name)
	if err != nil {
		return nil, err
	}
	head := make([]byte, n)
	n, err = o.ReadAt(head, 0)
	if cerr := o.Close(); err == nil || errors.Is(err, io.EOF) {
		err = cerr
	}
	return head[:n], err
}

// asPath turns an error of a store into an error with the path or the URL of the object.
func asPath(err error) error {
	if e, ok := errors.AsType[*store.Error](err); ok {
		return &fs.PathError{Op: "open", Path: e.Path, Err: e.Err}
	}
	return err
}

// readError returns the error of a reader of a committed file. The error is a *CorruptError if the
// file is missing, damaged, or on a local disk that cannot be read. It is a *ShardError if a bucket
// cannot be read. An error that wraps ErrReplaced or ErrNewer only gets the path.
func (p *location) readError(path string, err error) error {
	if errors.Is(err, ErrReplaced) || errors.Is(err, ErrNewer) {
		return fmt.Errorf("%s: %w", path, err)
	}
	if unread(err) {
		return err
	}
	err = asPath(err)
	if _, ok := errors.AsType[*fs.PathError](err); ok && !p.folder && !errors.Is(err, fs.ErrNotExist) {
		return shardError("read", err)
	}
	return &CorruptError{Path: path, Row: -1, Err: err}
}

// unread reports whether err says nothing about the content of a file, because the file could not
// be read.
func unread(err error) bool {
	_, ok := errors.AsType[*ShardError](err)
	return ok && !errors.Is(err, fs.ErrNotExist)
}

// readChunk is the number of bytes that are read from a local file at a time. fetchChunk is the
// number of bytes of a request to a bucket. A request takes about 30 ms plus the transfer.
const (
	readChunk  = 256 << 10
	fetchChunk = 8 << 20
)

// checked checks the size and the digest of a shard, and passes its content to read. The libraries
// read many small ranges. checked therefore copies a shard of a bucket, into memory if one request
// is enough, and otherwise into an unnamed file.
func (p *location) checked(o store.Object, s Shard, read func(io.ReaderAt) error) error {
	var content io.ReaderAt
	var err error
	switch {
	case p.folder && p.byRange && p.intact.has(s) && o.Size() == s.Bytes:
		content = o
	case p.folder:
		content, err = o, copyChecked(io.Discard, o, o.Size(), s, p.chunk)
		if err == nil {
			p.intact.add(s)
		}
	case p.byRange && s.Format == Parquet && o.SHA256() == s.SHA256: // a reader of an Arrow stream needs all bytes before the row
		content, err = ranged(o, s)
	case s.Bytes <= fetchChunk:
		var b bytes.Buffer
		err = copyChecked(&b, o, o.Size(), s, p.chunk)
		content = bytes.NewReader(b.Bytes())
	default:
		f, ferr := os.CreateTemp("", "rollout-shard-") // a reader has no local folder, or must not write to it
		if ferr != nil {
			return ferr
		}
		defer func() { _ = f.Close() }() // nothing is lost
		if err = os.Remove(f.Name()); err == nil {
			err = copyChecked(f, o, o.Size(), s, p.chunk)
		}
		content = f
	}
	if err != nil {
		return err
	}
	err = read(content)
	if f, ok := content.(*rangedFile); ok && f.err != nil {
		err = f.err // the library can lose it
	}
	return err
}

// An intact contains the digests of files that had the right content when they were read. A nil
// *intact stays empty. Its methods can be called concurrently.
type intact struct{ digests sync.Map }

func (i *intact) add(s Shard) {
	if i != nil {
		i.digests.Store(s.SHA256, nil)
	}
}

func (i *intact) has(s Shard) bool {
	if i == nil {
		return false
	}
	_, ok := i.digests.Load(s.SHA256)
	return ok
}

// commitNumbers lists the log's folder and returns the numbers of the entries after the given
// number.
func (p *location) commitNumbers(after int64) (numbers []int64, err error) {
	found, err := p.filesIn(commitsDir, entryPath(after))
	for _, i := range found {
		if seq, ok := commitSeq(strings.TrimPrefix(i.Name, commitsDir+"/")); ok && seq > after {
			numbers = append(numbers, seq)
		}
	}
	return numbers, err
}
