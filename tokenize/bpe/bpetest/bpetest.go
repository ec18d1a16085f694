// Package bpetest opens the tokenizers stored in the repository's testdata, for
// tests of whatever needs a real one.
package bpetest

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// Names are the stored tokenizers, by folder.
func Names() []string {
	return []string{"qwen2.5", "qwen3", "llama3.1", "deepseek-v3", "gpt-oss", "mistral-nemo-tekken"}
}

// Path returns the path of a file below testdata/tokenizers.
func Path(name ...string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(file), "..", "..", "..", "testdata", "tokenizers"}, name...)...)
}

// Read returns a file below testdata/tokenizers, decompressed where it is stored
// with a .zst at the end of its name.
func Read(tb testing.TB, name ...string) []byte {
	tb.Helper()
	path := Path(name...)
	raw, err := os.ReadFile(path + ".zst")
	if os.IsNotExist(err) {
		raw, err = os.ReadFile(path)
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

// tokenizers keeps what Tokenizer has loaded: loading takes longer than most
// tests, and a tokenizer does not change.
var tokenizers sync.Map // name → *entry

type entry struct {
	mu  sync.Mutex
	tok *bpe.Tokenizer
}

// Tokenizer returns a stored tokenizer. It is loaded once per process and shared.
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
