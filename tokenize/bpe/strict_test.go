package bpe_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// TestRefused checks that Parse rejects a file that contradicts itself or needs a feature that is not
// implemented, and that the error has the reason: names match exactly and are unique, no field is
// missing, and null is rejected unless it has a meaning. TestPeerEdits compares with the reference engine.
func TestRefused(t *testing.T) {
	t.Parallel()
	parse := func(raw []byte) (*bpe.Tokenizer, error) { return bpe.Parse(raw, bpe.Options{Experimental: true}) }
	refuse := func(parse func([]byte) (*bpe.Tokenizer, error), name, file, want string) {
		t.Helper()
		kind, text, _ := strings.Cut(want, ": ")
		kinds := map[string]error{"unsupported": bpe.ErrUnsupported, "corrupt": bpe.ErrCorrupt}
		_, err := parse([]byte(file))
		if !errors.Is(err, kinds[kind]) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: Parse = %v, want %s", name, err, want)
		}
	}
	small := func(changes map[string]any) []byte {
		return smallFile(merged(object{"post_processor": template("<s>", "<s>", 259, 259)}, changes))
	}
	for _, base := range []struct {
		name  string
		build func(changes map[string]any) []byte
		parse func([]byte) (*bpe.Tokenizer, error)
	}{{"small", small, parse}, {"chars", charFile, parse}, {"tekken", tekkenFile, loadTekken}} {
		archive, err := txtar.ParseFile(filepath.Join("testdata", "refused", base.name+".txtar"))
		if err != nil || len(archive.Files) < 14 {
			t.Fatalf("%s: %v", base.name, err)
		}
		whole := string(base.build(nil))
		for _, c := range archive.Files {
			lines := strings.Split(string(c.Data), "\n") // the error, then changes, or a text and its replacement
			file := strings.Replace(whole, lines[1], lines[2], 1)
			var changes map[string]any
			if lines[2] == "" && json.Unmarshal([]byte(lines[1]), &changes) == nil {
				file = string(base.build(changes))
			}
			if file == whole {
				t.Errorf("%s: nothing to change", c.Name)
			}
			refuse(base.parse, c.Name, file, lines[0])
		}
	}
	check := func(name, file, want string) { t.Helper(); refuse(parse, name, file, want) }
	whole, long := string(small(nil)), strings.Repeat("a", 5000)
	check("empty", "", "corrupt: ")
	check("null", "null", "corrupt: ")
	check("unexpected data after the end", whole+"{}", "corrupt: where the end is expected")
	check("invalid UTF-8", strings.Replace(whole, "abc", "ab\xff", 1), "corrupt: not valid UTF-8")
	check("deep", `{"version":`+strings.Repeat("[", 100_000), "corrupt: ")
	check("no model", `{"version":"1.0"}`, "corrupt: ")
	check("added long", strings.Replace(whole, `"content":"`, `"content":"`+long, 1), "corrupt: ")
	many := func(key, list string, part object, n int) object {
		return object{key: object{"type": "Sequence", list: slices.Repeat([]object{part}, n)}}
	}
	twice := many("post_processor", "processors", template("<s>", "<s>", 259), 2)
	check("two templates", string(small(twice)), "unsupported: 2 templates")
	steps := many("normalizer", "normalizers", object{"type": "NFC"}, 100)
	check("steps", string(charFile(steps)), "unsupported: 100 steps")
	stages := many("pre_tokenizer", "pretokenizers", object{"type": "Digits", "individual_digits": true}, 17)
	check("stages", string(charFile(stages)), "unsupported: Sequence of 17")
	prepend := object{"normalizer": object{"type": "Prepend", "prepend": long}}
	check("long prepend", string(charFile(prepend)), "unsupported: prepends more than 64 bytes")
	longer := object{
		"normalizer":   replacePart("a", strings.Repeat("b", 64)),
		"added_tokens": []object{addedPart(278, long[:1000], "normalized")},
	}
	check("normalized to a long one", string(charFile(longer)), "unsupported: 64000 bytes after normalization")
}

// TestAccepted checks files that look wrong.
func TestAccepted(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]map[string]any{
		"null options":        {"model.fuse_unk": nil, "model.ignore_merges": nil, "model.byte_fallback": nil},
		"names of Command-R":  {"post_processor": merged(template("<s>", "<s>", 259, 259), object{"add_prefix_space": true, "trim_offsets": false, "use_regex": true})},
		"version of merges":   {"model.merges": []string{"#version: 0.2", "a b", "ab c", "Ġ a"}},
		"dropout that is off": {"model.dropout": 0},
	} {
		if _, err := bpe.Parse(smallFile(change), bpe.Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func merged(a, b object) object {
	maps.Copy(a, b)
	return a
}

// TestTruncated checks that the error for a truncated file has the offset of its end.
func TestTruncated(t *testing.T) {
	t.Parallel()
	whole := smallFile(map[string]any{"post_processor": template("<s>", "<s>", 259, 259)})
	for n := range len(whole) {
		_, err := bpe.Parse(whole[:n], bpe.Options{})
		want := fmt.Sprintf("(byte %d)", n)
		if !utf8.Valid(whole[:n]) {
			want = "not valid UTF-8"
		}
		// A truncated word or escape is an error at its start.
		if err == nil || !strings.Contains(err.Error(), want) && !regexp.MustCompile(`"[tfn]" where a value is expected|an unknown escape`).MatchString(err.Error()) {
			t.Fatalf("%d of %d bytes: %v, want %q", n, len(whole), err, want)
		}
	}
	nul := append(slices.Clip(whole), 0)
	if _, err := bpe.Parse(nul, bpe.Options{}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("where the end is expected (byte %d)", len(whole))) {
		t.Errorf("NUL at the end: %v", err)
	}
	if _, err := bpe.Parse([]byte("{\x00"), bpe.Options{}); err == nil || !strings.Contains(err.Error(), `"\x00" where a name is expected (byte 1)`) {
		t.Errorf("NUL inside: %v", err)
	}
}

// TestLoadPointer checks that Load and LoadTiktoken read with package modelfile, which rejects a path that
// is not a regular file.
func TestLoadPointer(t *testing.T) {
	t.Parallel()
	for _, file := range []string{bpe.FileJSON, bpe.FileTiktoken} {
		folder := fstest.MapFS{file: {Data: []byte("version https://git-lfs.github.com/spec/v1\noid sha256:1\n")}}
		_, err := bpe.Load(folder, bpe.Options{Experimental: true})
		if !errors.Is(err, bpe.ErrCorrupt) || !strings.Contains(err.Error(), file+": ") || !strings.Contains(err.Error(), "git lfs pull") {
			t.Errorf("%s: %v", file, err)
		}
	}
}
