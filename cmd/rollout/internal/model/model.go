// Package model reads a model's own tokenizer and chat template from its folder, spells
// tokens for people, and says which of template, tokenizer or server differs where a
// rebuilt prompt is not what the server used.
package model

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// Load reads a model's own tokenizer and chat template from its folder. The
// errors name key, which says how the folder was given.
func Load(key, dir string, experimental bool) (*prompt.Model, error) {
	tokenizer, err := LoadTokenizer(key, dir, experimental)
	if err != nil {
		return nil, err
	}
	templates, err := LoadTemplates(key, dir)
	if err != nil {
		return nil, err
	}
	// Where a model has a template for tools, the server takes it.
	template := templates.For(true)
	if template == nil {
		return nil, exit.Usagef("%s: %s: no template is called %s; the names are %s",
			key, dir, chat.DefaultName, strings.Join(templates.Names(), ", "))
	}
	return &prompt.Model{Template: template, Tokenizer: tokenizer}, nil
}

// LoadTokenizer reads a tokenizer. experimental admits families that have not been
// compared with the reference on their real vocabulary.
func LoadTokenizer(key, dir string, experimental bool) (*bpe.Tokenizer, error) {
	tokenizer, err := bpe.Load(packedFS{modelFiles(dir)}, bpe.Options{Experimental: experimental})
	switch {
	case err == nil:
		return tokenizer, nil
	case errors.Is(err, bpe.ErrExperimental):
		return nil, exit.Hint(exit.Usagef("%s: %s: %w", key, dir, err), "--experimental accepts it; first compare some texts with the model's own tokenizer")
	case errors.Is(err, fs.ErrNotExist):
		return nil, exit.Hint(exit.Usagef("%s: %s: %w", key, dir, err),
			"give the folder with tokenizer.json, as the model's repository has it; tokenizer.json.gz and .zst will do")
	}
	return nil, exit.Usagef("%s: %s: %w", key, dir, err)
}

// LoadTemplates reads the chat templates of a model from its folder.
func LoadTemplates(key, dir string) (*chat.Set, error) {
	templates, err := chat.Load(packedFS{modelFiles(dir)}, chat.Options{Now: time.Now})
	if err != nil {
		return nil, exit.Usagef("%s: %s: %w", key, dir, err)
	}
	return templates, nil
}

// A modelFiles is a folder whose files are read with a bound, and pipes in it with a
// deadline.
type modelFiles string

// Open opens a file of the folder.
func (m modelFiles) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	path := filepath.Join(string(m), filepath.FromSlash(name))
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return os.Open(path) // a folder of templates
	case info.Mode().IsRegular() && info.Size() <= input.MaxModelFile:
		return os.Open(path)
	}
	b, err := input.Read(path, input.MaxModelFile, input.Wait)
	if err != nil {
		return nil, err
	}
	return &unpackedFile{Reader: bytes.NewReader(b), name: name}, nil
}

// A packedFS is a folder in which a file that is not there may be there
// compressed, as NAME.zst or NAME.gz.
type packedFS struct{ fs.FS }

// maxUnpackedBytes bounds a file that a small one may unpack to. The largest
// tokenizer.json that is published has some 40 MB.
const maxUnpackedBytes = 512 << 20

// Open opens the file itself where it is there.
func (p packedFS) Open(name string) (fs.File, error) {
	f, err := p.FS.Open(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	for _, ending := range []string{".zst", ".gz"} {
		packed, openErr := p.FS.Open(name + ending)
		if openErr != nil {
			continue
		}
		text, err := unpack(packed, ending)
		if err = errors.Join(err, packed.Close()); err != nil {
			return nil, &fs.PathError{Op: "read", Path: name + ending, Err: err}
		}
		return &unpackedFile{Reader: bytes.NewReader(text), name: name}, nil
	}
	return nil, err
}

func unpack(f io.Reader, ending string) ([]byte, error) {
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
	b, err := io.ReadAll(io.LimitReader(r, maxUnpackedBytes+1))
	if err == nil && len(b) > maxUnpackedBytes {
		err = fmt.Errorf("unpacks to more than %s", human.Size(maxUnpackedBytes))
	}
	return b, err
}

// An unpackedFile is the fs.File of a text in memory.
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

// A Speller says how a token is shown: as its number, or, with a tokenizer, as its
// text.
type Speller func(id int32) string

// Decimal shows a token as its number.
func Decimal(id int32) string { return strconv.Itoa(int(id)) }

// LoadSpeller shows tokens as text.
func LoadSpeller(dir string) (Speller, error) {
	tokenizer, err := LoadTokenizer("--tokenizer", dir, true) // nothing is encoded with it
	if err != nil {
		return nil, err
	}
	return SpellerOf(tokenizer), nil
}

// SpellerOf shows a space as ·, and a line break and whatever cannot be printed
// escaped.
func SpellerOf(tokenizer *bpe.Tokenizer) Speller {
	return func(id int32) string {
		b, err := tokenizer.Bytes(id)
		if err != nil || len(b) == 0 {
			return "<" + Decimal(id) + ">"
		}
		return strings.ReplaceAll(quoteless(string(b)), " ", "·")
	}
}

// quoteless is text on one line, with what cannot be printed escaped.
func quoteless(text string) string {
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
