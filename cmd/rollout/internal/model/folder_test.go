package model

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// A file system that never answers causes an error with the name of the file. A slow one does not.
func TestReadSilent(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"stat", "open", "read"} {
		synctest.Test(t, func(t *testing.T) {
			hangs := &hangingFS{MapFS: fstest.MapFS{"f": {Data: []byte("{}")}}, call: call, end: make(chan struct{})}
			defer close(hangs.end)
			start := time.Now()
			_, err := read(hangs, func(files fs.FS) ([]byte, error) {
				if _, err := fs.Stat(files, "f"); err != nil {
					return nil, err
				}
				return fs.ReadFile(files, "f")
			})
			if err == nil || err.Error() != "f: no answer from the file system for 30s" {
				t.Errorf("%s hangs: %v", call, err)
			}
			if took := time.Since(start); took > 40*time.Second {
				t.Errorf("%s hangs: %v", call, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		text, err := read(fstest.MapFS{"f": {Data: []byte("{}")}}, func(files fs.FS) ([]byte, error) {
			time.Sleep(time.Hour) // not in a file system call
			return fs.ReadFile(files, "f")
		})
		if string(text) != "{}" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// A hangingFS blocks in one kind of call until end is closed.
type hangingFS struct {
	fstest.MapFS
	call string
	end  chan struct{}
}

func (h *hangingFS) Stat(name string) (fs.FileInfo, error) {
	if h.call == "stat" {
		<-h.end
	}
	return h.MapFS.Stat(name)
}

func (h *hangingFS) Open(name string) (fs.File, error) {
	if h.call == "open" {
		<-h.end
	}
	f, err := h.MapFS.Open(name)
	return &hangingFile{f, h}, err
}

type hangingFile struct {
	fs.File
	fs *hangingFS
}

func (f *hangingFile) Read(p []byte) (int, error) {
	if f.fs.call == "read" {
		<-f.fs.end
	}
	return f.File.Read(p)
}

// A small file that unpacks to a large one needs little memory.
func TestUnpackBounded(t *testing.T) {
	for _, ending := range []string{".zst", ".gz"} {
		var packed bytes.Buffer
		var w io.WriteCloser = gzip.NewWriter(&packed)
		if ending == ".zst" {
			z, err := zstd.NewWriter(&packed)
			if err != nil {
				t.Fatal(err)
			}
			w = z
		}
		text := bytes.Repeat([]byte(" "), 1<<20)
		for range 64 {
			if _, err := w.Write(text); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"+ending), packed.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := LoadTokenizer("--tokenizer", dir, false, nil)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "100 times its size") {
			t.Errorf("%s: %v", ending, err)
		}
		// The zstd decoder has a window of 8 MiB, and blocks in flight.
		if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
			t.Errorf("%s: %d bytes allocated for %d", ending, got, packed.Len())
		}
	}
}

// All readers of a model's folder refuse special files and invalid files at once.
func TestLoadHostile(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, want string
		make       func(path string) error
	}{
		{"pipe", "is a named pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		{"zero", "is a device", func(path string) error { return os.Symlink("/dev/zero", path) }},
		{"folder", "is a folder", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"pointer", "git lfs pull", func(path string) error {
			return os.WriteFile(path, []byte("version https://git-lfs.github.com/spec/v1\noid sha256:aeb1\nsize 11422650\n"), 0o600)
		}},
		{"nul", "NUL bytes", func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) }},
		{"cut", "byte 9", func(path string) error { return os.WriteFile(path, []byte(`{"model":`), 0o600) }},
	} {
		for _, file := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
			if file == "chat_template.jinja" && test.name == "cut" {
				continue // any text is a template
			}
			dir := t.TempDir()
			if err := test.make(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
			var err error
			if file == "tokenizer.json" {
				_, err = LoadTokenizer("--tokenizer", dir, false, nil)
			} else {
				_, err = LoadTemplates("--tokenizer", dir)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("%s as %s: %v, want %q", test.name, file, err, test.want)
			}
		}
	}
}
