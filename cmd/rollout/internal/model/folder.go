package model

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// silence is the maximum time for one file system call. A network file system can block forever if
// its server is dead.
const silence = 30 * time.Second

// A source contains the files in a model's folder, or the files of the simulated model. It records the
// names of the files that were opened.
type source struct {
	fs.FS
	mu     sync.Mutex
	opened map[string]bool
}

func open(dir string) *source {
	s := &source{FS: os.DirFS(dir), opened: map[string]bool{}}
	if dir == lettasim.ModelName {
		s.FS = lettasim.Model()
	}
	return s
}

// Stat and ReadDir do not open the file: the open of a named pipe would block.
func (s *source) Stat(name string) (fs.FileInfo, error)      { return fs.Stat(s.FS, name) }
func (s *source) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(s.FS, name) }

func (s *source) record(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened[name] = true
}

// read passes the files to the function load and returns its results. If one file system call takes
// too long (see silence), read abandons load and returns an error that names the file.
func read[T any](files fs.FS, load func(fs.FS) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	f := &folder{files: files}
	f.source, _ = files.(*source)
	done := make(chan result, 1) // buffered, because read might have returned
	go func() {                  // a blocked system call cannot be interrupted; the program ends soon after the error
		v, err := load(f)
		done <- result{v, err}
	}()
	tick := time.NewTicker(silence / 10)
	defer tick.Stop()
	for {
		select {
		case r := <-done:
			return r.value, r.err
		case <-tick.C:
			if call := f.pending.Load(); call != nil && time.Since(call.since) >= silence {
				var none T
				return none, fmt.Errorf("%s: the file system has not responded for %v", call.name, silence)
			}
		}
	}
}

// A folder is a model's folder. If a file is missing, the compressed file NAME.zst or NAME.gz can
// take its place. A folder also records which file a pending call is waiting for.
type folder struct {
	files   fs.FS
	pending atomic.Pointer[pendingCall] // nil if no call is pending
	source  *source                     // records the names of opened files; nil in tests
}

type pendingCall struct {
	name  string
	since time.Time
}

// waits records that a call for the file name is pending, until the returned function is called.
func (f *folder) waits(name string) (answered func()) {
	f.pending.Store(&pendingCall{name, time.Now()})
	return func() { f.pending.Store(nil) }
}

type watchedFile struct {
	fs.File
	folder *folder
	name   string
}

func (w *watchedFile) Read(p []byte) (int, error) {
	defer w.folder.waits(w.name)()
	return w.File.Read(p)
}

func (f *folder) open(name string) (fs.File, error) {
	defer f.waits(name)()
	file, err := f.files.Open(name)
	if err != nil {
		return nil, err
	}
	return &watchedFile{file, f, name}, nil
}

func (f *folder) stat(name string) (fs.FileInfo, error) {
	defer f.waits(name)()
	return fs.Stat(f.files, name)
}

// endings are the extensions of compressed files, in the order in which they are tried.
var endings = [...]string{".zst", ".gz"}

// Stat describes the file or, if only a compressed file exists, the compressed file.
func (f *folder) Stat(name string) (fs.FileInfo, error) {
	info, err := f.stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		for _, ending := range endings {
			if info, err := f.stat(name + ending); err == nil {
				return info, nil
			}
		}
	}
	return info, err
}

// ReadDir lists the entries of a subfolder.
func (f *folder) ReadDir(name string) ([]fs.DirEntry, error) {
	defer f.waits(name)()
	return fs.ReadDir(f.files, name)
}

// Open opens the file or, if only a compressed file exists, the compressed file.
func (f *folder) Open(name string) (fs.File, error) {
	file, err := f.openAny(name)
	if err == nil && f.source != nil {
		f.source.record(name)
	}
	return file, err
}

func (f *folder) openAny(name string) (fs.File, error) {
	file, err := f.open(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	for _, ending := range endings {
		packed, openErr := f.open(name + ending)
		if openErr != nil {
			continue
		}
		info, err := packed.Stat()
		var text []byte
		if err == nil {
			text, err = unpack(packed, ending, info.Size())
		}
		if err = errors.Join(err, packed.Close()); err != nil {
			return nil, &fs.PathError{Op: "read", Path: name + ending, Err: err}
		}
		return &unpackedFile{Reader: bytes.NewReader(text), name: name}, nil
	}
	return nil, err
}

// The limits for an unpacked file. The largest published tokenizer.json has about 40 MB, and
// compresses to a seventh or an eighth of this size. usualRatio determines the size of the first
// allocation.
const (
	maxUnpackedBytes = 256 << 20
	maxRatio         = 100
	usualRatio       = 9
)

func unpack(f io.Reader, ending string, size int64) ([]byte, error) {
	most := min(maxUnpackedBytes, maxRatio*size)
	var r io.Reader
	if ending == ".gz" {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, err
		}
		r = z
	} else {
		z, err := zstd.NewReader(f, zstd.WithDecoderMaxMemory(maxUnpackedBytes))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	}
	b := bytes.NewBuffer(make([]byte, 0, min(most, usualRatio*size)+bytes.MinRead))
	_, err := b.ReadFrom(io.LimitReader(r, most+1))
	if err == nil && int64(b.Len()) > most {
		err = fmt.Errorf("unpacks to more than %s (%d times its size): is this the right file?", format.Size(most), most/max(size, 1))
	}
	return b.Bytes(), err
}

type unpackedFile struct {
	*bytes.Reader
	name string
}

func (f *unpackedFile) Stat() (fs.FileInfo, error) { return unpackedInfo{f}, nil }
func (f *unpackedFile) Close() error               { return nil }

type unpackedInfo struct{ f *unpackedFile }

func (i unpackedInfo) Name() string       { return i.f.name }
func (i unpackedInfo) Size() int64        { return i.f.Size() }
func (i unpackedInfo) Mode() fs.FileMode  { return 0o444 }
func (i unpackedInfo) ModTime() time.Time { return time.Time{} }
func (i unpackedInfo) IsDir() bool        { return false }
func (i unpackedInfo) Sys() any           { return nil }
