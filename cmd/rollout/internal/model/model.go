// Package model loads a model's tokenizer and chat template from its folder, and formats tokens as
// text. If a rebuilt prompt differs from the server's prompt, it diagnoses whether the template,
// the tokenizer or the server is the cause.
package model

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// Load reads a model's tokenizer and chat template from its folder. The folder name simulated
// stands for the model of `rollout simulate`. Errors begin with key, which is the setting or flag
// that specified the folder.
func Load(key, dir string, experimental bool, releases []chat.Transformers) (*prompt.Model, error) {
	m, _, err := LoadFiles(key, dir, experimental, releases)
	return m, err
}

// LoadFiles is like Load. It also returns the files that were read.
func LoadFiles(key, dir string, experimental bool, releases []chat.Transformers) (*prompt.Model, *Files, error) {
	files := open(dir)
	m, err := load(key, dir, files, experimental, releases)
	if err != nil {
		return nil, nil, err
	}
	return m, files.kept(), nil
}

func load(key, dir string, files *source, experimental bool, releases []chat.Transformers) (*prompt.Model, error) {
	tokenizer, err := loadTokenizer(key, dir, files, experimental, releases)
	if err != nil {
		return nil, err
	}
	return loadRest(key, dir, files, tokenizer)
}

// loadRest loads what a model has besides its tokenizer.
func loadRest(key, dir string, files *source, tokenizer *bpe.Tokenizer) (*prompt.Model, error) {
	templates, err := loadTemplates(key, dir, files)
	if err != nil {
		return nil, err
	}
	// If a model has a template for tools, the server uses that template.
	template := templates.For(true)
	if template == nil {
		return nil, exit.Usagef("%s: %s: no template named %s; the names are %s",
			key, dir, chat.DefaultName, strings.Join(templates.Names(), ", "))
	}
	m := &prompt.Model{Template: template, Tokenizer: tokenizer}
	if err := readEngine(files, m); err != nil {
		return nil, exit.Usagef("%s: %s: %w", key, dir, err)
	}
	return m, nil
}

// LoadTokenizer reads a tokenizer. If experimental is set, it also accepts tokenizer families whose
// real vocabulary has not been compared with the reference. The parameter releases lists the
// versions of the transformers library that the server might use. If it is nil, the server might
// use any version.
func LoadTokenizer(key, dir string, experimental bool, releases []chat.Transformers) (*bpe.Tokenizer, error) {
	return loadTokenizer(key, dir, open(dir), experimental, releases)
}

func loadTokenizer(key, dir string, files *source, experimental bool, releases []chat.Transformers) (*bpe.Tokenizer, error) {
	tokenizer, err := read(files, func(files fs.FS) (*bpe.Tokenizer, error) {
		return bpe.Load(files, bpe.Options{Experimental: experimental, Releases: releases})
	})
	switch {
	case err == nil:
		return tokenizer, nil
	case errors.Is(err, bpe.ErrExperimental):
		return nil, exit.Hint(exit.Usagef("%s: %s: %w", key, dir, err), "compare its ids with the ids from the model's own tokenizer; if they are equal, accept the tokenizer with --experimental")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, noTokenizer(key, dir, err)
	}
	return nil, exit.Usagef("%s: %s: %w", key, dir, err)
}

// noTokenizer describes what the folder contains instead of a tokenizer.
func noTokenizer(key, dir string, err error) error {
	hint := "use the folder with tokenizer.json or tekken.json from the model's repository; tokenizer.json.gz and .zst also work"
	if info, cause := os.Stat(dir); cause != nil {
		if path, ok := errors.AsType[*fs.PathError](cause); ok {
			cause = path.Err // the message already contains the path
		}
		return exit.Hint(exit.Usagef("%s: %s: %w", key, dir, cause), hint)
	} else if !info.IsDir() {
		return exit.Hint(exit.Usagef("%s: %s is a file, not a folder", key, dir), "use the folder that contains the file: "+format.Shell(filepath.Dir(dir)))
	}
	entries, _ := os.ReadDir(dir) // an unreadable folder counts as empty
	if i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".gguf") }); i >= 0 {
		return exit.Hint(exit.Usagef("%s: %s contains %s but no tokenizer.json", key, dir, entries[i].Name()),
			"GGUF tokenizers are not supported: use the folder of the original model, with its tokenizer.json and chat template")
	}
	return exit.Hint(exit.Usagef("%s: %s: %w", key, dir, err), hint)
}

// LoadTemplates reads a model's chat templates from its folder.
func LoadTemplates(key, dir string) (*chat.Set, error) { return loadTemplates(key, dir, open(dir)) }

func loadTemplates(key, dir string, files *source) (*chat.Set, error) {
	templates, err := read(files, func(files fs.FS) (*chat.Set, error) {
		return chat.Load(files, chat.Options{})
	})
	if err != nil {
		return nil, exit.Usagef("%s: %s: %w", key, dir, err)
	}
	return templates, nil
}

// A Speller formats a token as its id or, if a tokenizer is known, as its text.
type Speller func(id int32) string

// Decimal formats a token as its id.
func Decimal(id int32) string { return strconv.Itoa(int(id)) }

// loadExact loads the tokenizer with the digest, or the first tokenizer if the digest is empty.
func loadExact(key, dir string, files *source, digest string) (*bpe.Tokenizer, error) {
	first, err := loadTokenizer(key, dir, files, true, nil)
	if err != nil && !errors.Is(err, bpe.ErrUnsupported) {
		return nil, err
	}
	accepts := func(t *bpe.Tokenizer) bool { return t != nil && (digest == "" || t.Digest() == digest) }
	for releases := chat.AllTransformers(); !accepts(first) && len(releases) > 0; releases = releases[1:] {
		if t, no := loadTokenizer(key, dir, files, true, releases[:1]); no == nil && (first == nil || accepts(t)) {
			first = t
		}
	}
	switch {
	case first == nil:
		return nil, err
	case !accepts(first):
		return nil, another("tokenizer", dir, first.Digest(), digest)
	}
	return first, nil
}

// SpellerOf returns a Speller for a tokenizer. The Speller shows a space as ·, and escapes line
// breaks and unprintable characters. Without a tokenizer, SpellerOf returns Decimal.
func SpellerOf(tokenizer *bpe.Tokenizer) Speller {
	if tokenizer == nil {
		return Decimal
	}
	return func(id int32) string {
		b, err := tokenizer.Bytes(id)
		if err != nil || len(b) == 0 {
			return "<" + Decimal(id) + ">"
		}
		return strings.ReplaceAll(quoteless(string(b)), " ", "·")
	}
}

// quoteless returns text on one line, with unprintable characters escaped.
func quoteless(text string) string {
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
