package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Files are the files from which a model was loaded. A copy of these files loads the same model.
type Files struct {
	from   *source
	names  []string // sorted
	digest func() (string, error)
}

func (s *source) kept() *Files {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &Files{from: s, names: slices.Sorted(maps.Keys(s.opened))}
	f.digest = sync.OnceValues(f.sum)
	return f
}

// Digest returns the SHA-256, in lower-case hex, of the names and the contents of the files. A file that
// is compressed counts with the content that it unpacks to.
func (f *Files) Digest() (string, error) { return f.digest() }

func (f *Files) sum() (string, error) {
	h := sha256.New()
	for _, name := range f.names {
		b, err := f.read(name)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(h, "%s %d\n", name, len(b)) // never fails
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (f *Files) read(name string) ([]byte, error) {
	b, err := read(f.from, func(files fs.FS) ([]byte, error) { return fs.ReadFile(files, name) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// packBytes is the size above which Copy compresses a file. A tokenizer.json shrinks to about a fifth.
const packBytes = 64 << 10

// Copy passes the name and the content of each file to write. A large file gets the ending .zst and is
// compressed. Files in subfolders are not, because loaders list these folders.
func (f *Files) Copy(write func(name string, content func(io.Writer) error) error) error {
	for _, name := range f.names {
		b, err := f.read(name)
		if err != nil {
			return err
		}
		content := func(w io.Writer) error { _, err := w.Write(b); return err }
		if len(b) > packBytes && !strings.Contains(name, "/") {
			name += endings[0]
			plain := content
			content = func(w io.Writer) error {
				z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
				if err != nil {
					return err
				}
				if err := plain(z); err != nil {
					return err
				}
				return z.Close()
			}
		}
		if err := write(filepath.FromSlash(name), content); err != nil {
			return err
		}
	}
	return nil
}
