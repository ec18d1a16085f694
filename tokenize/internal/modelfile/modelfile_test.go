package modelfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

// TestRead checks that regular files are read whole and other files are rejected by type.
func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	long := strings.Repeat("0123456789abcdef", 1<<12)
	for name, text := range map[string]string{"empty": "", "short": "{}", "long": long, "nul": strings.Repeat("\x00", 4096), "pointer": pointerStart + "\noid sha256:4d7a\nsize 11422650\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": "long", "pipelink": "pipe", "zero": "/dev/zero", "dangling": "nothing", "self": "self"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, want string
		bytes      int
	}{
		{"empty", "", 0},
		{"short", "", 2},
		{"long", "", len(long)},
		{"link", "", len(long)},
		{"nul", "the first 512 bytes are NUL", 0},
		{"pointer", `run "git lfs pull"`, 0},
		{"pipe", "a named pipe, not", 0},
		{"pipelink", "a named pipe, not", 0},
		{"zero", "a device, not", 0},
		{"folder", "a folder, not", 0},
		{"dangling", "no such file", 0},
		{"self", "too many levels of symbolic links", 0},
	} {
		b, err := Read(os.DirFS(dir), test.name, int64(len(long)))
		switch {
		case test.want == "" && (err != nil || len(b) != test.bytes):
			t.Errorf("%s: %d bytes, %v", test.name, len(b), err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
	_, err := Read(os.DirFS(dir), "long", 100)
	if bad, ok := errors.AsType[*Error](err); !ok || !bad.TooLarge {
		t.Errorf("65536 bytes of at most 100: %v", err)
	}
	if _, err := Read(fstest.MapFS{"f": {Data: []byte(long)}}, "f", 1<<20); err != nil {
		t.Error(err)
	}
}

// A lyingFS has one file, which reports a wrong size.
type lyingFS struct {
	fs.FileInfo // nil: only Size and Mode are called
	says        int64
	has         io.Reader
}

func (l lyingFS) Open(string) (fs.File, error) { return l, nil }
func (l lyingFS) Read(p []byte) (int, error)   { return l.has.Read(p) }
func (l lyingFS) Close() error                 { return nil }
func (l lyingFS) Stat() (fs.FileInfo, error)   { return l, nil }
func (l lyingFS) Size() int64                  { return l.says }
func (l lyingFS) Mode() fs.FileMode            { return 0o444 }

// TestReadBounded checks that the reported size of a file bounds the memory that Read allocates.
func TestReadBounded(t *testing.T) {
	endless := func() io.Reader { return io.MultiReader(strings.NewReader("{"), zeros{}) }
	for _, test := range []struct {
		name string
		fsys lyingFS
		want string
	}{
		{"endless, says nothing", lyingFS{nil, 0, endless()}, "grew past 0 bytes"},
		{"endless, says little", lyingFS{nil, 1000, endless()}, "grew past 1000 bytes"},
		{"says too much", lyingFS{nil, 1 << 50, endless()}, "limit 1048576"},
		{"holds less", lyingFS{nil, 1 << 20, strings.NewReader("{}")}, "ends at byte 2 of 1048576"},
		{"fails", lyingFS{nil, 4, io.MultiReader(strings.NewReader("{"), broken{})}, "input/output error"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(test.fsys, "f", 1<<20)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 64<<10 {
			t.Errorf("%s: %d bytes allocated", test.name, got)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, syscall.EIO }
