// Package bpetest loads real tokenizers for tests. Some tokenizers are in the repository's
// testdata. The licenses of the other tokenizers do not allow this, so `make vocabularies`
// installs them.
package bpetest

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// stored lists the folders of the tokenizers in testdata. installed lists the folders of the
// tokenizers that `make vocabularies` installs.
var (
	stored    = []string{"qwen2.5", "qwen3", "gpt-oss", "mistral-nemo-tekken"}
	installed = []string{
		"llama3.1", "llama4", "deepseek-v3", "deepseek-v4", "glm4.5", "glm5", "minimax-m2", "qwen3.5",
		"command-r-plus", "gemma3", "llama2",
	}
)

// Names returns the names of the tokenizers that tests use.
func Names() []string {
	return slices.Concat(stored, installed)
}

// repository returns the folder that contains go.mod. This folder is a parent of every test's
// folder.
var repository = sync.OnceValue(func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			panic("no go.mod above the folder of the test")
		}
		dir = filepath.Dir(dir)
	}
})

// Path returns the path of a file in testdata/tokenizers. If the first element of name is an
// installed tokenizer, the file is in .build/vocabularies.
func Path(name ...string) string {
	root := repository()
	if slices.Contains(installed, name[0]) {
		root = filepath.Join(root, ".build", "vocabularies")
	} else {
		root = filepath.Join(root, "testdata", "tokenizers")
	}
	return filepath.Join(append([]string{root}, name...)...)
}

// Installed reports whether a tokenizer is available. Tokenizers in testdata are always
// available.
func Installed(name string) bool {
	if slices.Contains(stored, name) {
		return true
	}
	_, err := os.Stat(Path(name, bpe.FileJSON))
	return err == nil
}

// Read returns the content of the file at Path, decompressed if the file is stored as .zst. If the
// tokenizer is not installed, Read fails the test or, with -short, skips it.
func Read(tb testing.TB, name ...string) []byte {
	tb.Helper()
	path := Path(name...)
	raw, err := os.ReadFile(path + ".zst")
	if os.IsNotExist(err) {
		raw, err = os.ReadFile(path)
		if os.IsNotExist(err) && slices.Contains(installed, name[0]) {
			if testing.Short() {
				tb.Skipf("short: %s is not installed; make vocabularies installs it", name[0])
			}
			tb.Fatalf("%s is not installed: run make vocabularies", name[0])
		}
		if err != nil {
			tb.Fatal(err)
		}
		return raw
	}
	if err != nil {
		tb.Fatal(err)
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<27))
	if err != nil {
		tb.Fatal(err)
	}
	defer d.Close()
	out, err := d.DecodeAll(raw, nil)
	if err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	return out
}

// tokenizers caches the results of Tokenizer, because loading a tokenizer takes longer than most
// tests.
var tokenizers sync.Map // name → *entry

type entry struct {
	mu  sync.Mutex
	tok *bpe.Tokenizer
}

// Tokenizer returns the tokenizer with the given name. Each tokenizer is loaded once per process
// and shared by the tests.
func Tokenizer(tb testing.TB, name string) *bpe.Tokenizer {
	tb.Helper()
	made, _ := tokenizers.LoadOrStore(name, new(entry))
	e, ok := made.(*entry)
	if !ok {
		tb.Fatalf("%T in place of a tokenizer", made)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tok == nil {
		tok, err := bpe.Load(fstest.MapFS{bpe.FileJSON: {Data: Read(tb, name, bpe.FileJSON)}}, bpe.Options{})
		if err != nil {
			tb.Fatal(err)
		}
		e.tok = tok
	}
	return e.tok
}
