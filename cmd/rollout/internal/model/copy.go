package model

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A Place is where the tokenizer and the chat template of a run are: in the run's own copy, or in the folder of
// a model.
type Place struct {
	Key string // the setting or the flag that named the folder. Errors begin with it.
	Dir string // the folder; empty if there is none
	// Copy is the digest of the files if Dir is the run's own copy; see [Files.Digest].
	Copy string
	// Store contains the copy, under Copy. It is nil if the copy is in Dir.
	Store store.Store
	// Tokenizer and Template are the digests of the run. They are empty if they are not known.
	Tokenizer, Template string
}

// Load loads the tokenizer and the chat template of the run. It refuses other ones than the run's, and a copy
// whose files have changed.
func (p *Place) Load(releases []chat.Transformers) (*prompt.Model, error) {
	files, err := p.open()
	if err != nil {
		return nil, err
	}
	if p.Tokenizer == "" {
		return load(p.Key, p.Dir, files, true, releases)
	}
	tokenizer, err := loadExact(p.Key, p.Dir, files, p.Tokenizer)
	if err != nil {
		return nil, err
	}
	m, err := loadRest(p.Key, p.Dir, files, tokenizer)
	if err != nil {
		return nil, err
	}
	if got := TemplateDigest(m); p.Template != "" && got != p.Template {
		return nil, another("chat template", p.Dir, got, p.Template)
	}
	return m, nil
}

// LoadTokenizer is like Load without the chat template. If the digest of the run's tokenizer is not known, and
// different versions of the transformers library load different tokenizers, it returns the first one.
func (p *Place) LoadTokenizer() (*bpe.Tokenizer, error) {
	files, err := p.open()
	if err != nil {
		return nil, err
	}
	return loadExact(p.Key, p.Dir, files, p.Tokenizer)
}

// open opens the files. The files of a copy are read once, compared with their digest, and kept in memory.
func (p *Place) open() (*source, error) {
	if p.Copy == "" {
		return open(p.Dir), nil
	}
	files, err := p.read()
	if changed, ok := errors.AsType[*changedError](err); ok {
		return nil, exit.Refuse(exit.Verify, fmt.Errorf("%s: the run's copy of its tokenizer has changed: %w", p.Dir, changed),
			"restore the copy; or remove it, and pass the folder of the model with --tokenizer")
	}
	if err != nil {
		return nil, exit.With(exit.Storage, fmt.Errorf("%s: %w", p.Dir, err))
	}
	return &source{FS: files, opened: map[string]bool{}}, nil
}

func (p *Place) read() (fs.FS, error) {
	names, read, err := p.list()
	if err != nil {
		return nil, err
	}
	return readCopy(p.Copy, names, read)
}

// list returns the names of the files of the copy, and a function that reads one.
func (p *Place) list() (names []string, read func(name string) ([]byte, error), err error) {
	if p.Store == nil {
		names, err = filesIn(p.Dir)
		return names, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(p.Dir, name)) }, err
	}
	prefix := p.Copy + "/"
	for info, err := range p.Store.List(prefix, "") {
		if err != nil {
			return nil, nil, err
		}
		names = append(names, strings.TrimPrefix(info.Name, prefix))
	}
	return names, func(name string) ([]byte, error) { return p.Store.Get(prefix + name) }, nil
}

func filesIn(dir string) (names []string, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

// A changedError reports that the files of a copy differ from their digest.
type changedError struct{ err error }

func (e *changedError) Error() string { return e.err.Error() }
func (e *changedError) Unwrap() error { return e.err }

// readCopy returns the files of a copy, or a *changedError.
func readCopy(digest string, names []string, read func(name string) ([]byte, error)) (fs.FS, error) {
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	for _, name := range names {
		body, err := read(name)
		if err != nil {
			return nil, err
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err == nil {
			_, err = w.Write(body)
		}
		if err != nil {
			return nil, err
		}
	}
	err := z.Close()
	if err != nil {
		return nil, err
	}
	files, err := zip.NewReader(bytes.NewReader(packed.Bytes()), int64(packed.Len()))
	if err != nil {
		return nil, err
	}
	sum := &Files{from: &source{FS: files, opened: map[string]bool{}}}
	for _, name := range names {
		if !strings.Contains(name, "/") { // see Files.Copy
			name = strings.TrimSuffix(name, endings[0])
		}
		sum.names = append(sum.names, name)
	}
	slices.Sort(sum.names)
	switch got, err := sum.sum(); {
	case err != nil:
		return nil, &changedError{err}
	case got != digest:
		return nil, &changedError{fmt.Errorf("the files have sha256 %.12s, want %.12s", got, digest)}
	}
	return files, nil
}

// Check checks that a copy has the files that [Files.Copy] wrote to it. changed says how they differ. It is nil if
// they do not, or if they cannot be read.
func (p *Place) Check() (changed, err error) {
	_, err = p.read()
	if found, ok := errors.AsType[*changedError](err); ok {
		return found, nil
	}
	return nil, err
}

// TemplateDigest returns the SHA-256 of the chat template, in lower-case hex.
func TemplateDigest(m *prompt.Model) string {
	sum := sha256.Sum256([]byte(m.Template.Source()))
	return hex.EncodeToString(sum[:])
}

// another returns the error for a tokenizer or a template that is not the run's.
func another(what, dir, got, want string) error {
	return exit.Hint(exit.Usagef("the %s in %s is not the run's %s (its sha256 is %.12s, but the run has %.12s)", what, dir, what, got, want),
		"pass the folder of the model with which the run was collected with --tokenizer")
}
