package bpe_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// TestStrict checks that names must match exactly and be unique, that no field is missing, and that
// null is rejected unless it has a meaning. TestPeerEdits compares with the reference engine.
func TestStrict(t *testing.T) {
	t.Parallel()
	whole := string(smallFile(map[string]any{"post_processor": template("<s>", "<s>", 259, 259)}))
	for _, test := range []struct{ name, old, new, want string }{
		{"case", `"ignore_merges":false`, `"Ignore_Merges":true`, `Ignore_Merges: unknown field (did you mean "ignore_merges"?)`},
		{"case beside", `"ignore_merges":false`, `"ignore_merges":false,"Ignore_merges":true`, "Ignore_merges: unknown field"},
		{"case of a part", `{"type":"NFC"}`, `{"Type":"NFC"}`, "normalizer without a type"},
		{"case at the top", `"version"`, `"Version"`, `"Version"`},
		{"case in a part", `"trim_offsets"`, `"Trim_Offsets"`, "Trim_Offsets: unknown field"},
		{"twice in the model", `"ignore_merges":false`, `"ignore_merges":false,"ignore_merges":true`, "ignore_merges: given twice in one object"},
		{"twice a type", `{"type":"NFC"}`, `{"type":"NFC","type":"NFD"}`, "type: given twice in one object"},
		{"twice a flag", `"special":true`, `"special":true,"special":false`, "special: given twice in one object"},
		{"twice a token", `"ab":256`, `"ab":256,"ab":256`, `duplicate token "ab"`},
		{"twice a special token", `"special_tokens":{`, `"special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]},`, "<s>: given twice in one object"},
		{"no flag", `"normalized":false,`, ``, `"normalized" is missing`},
		{"null for a flag", `"normalized":false,`, `"normalized":null,`, "null where a boolean is expected"},
		{"version null", `"version":"1.0"`, `"version":null`, "version: null where a string is expected"},
		{"version 2.0", `"version":"1.0"`, `"version":"2.0"`, `version "2.0"`},
		{"version a number", `"version":"1.0"`, `"version":1.0`, "version: a number where a string is expected"},
		{"null for the added tokens", `"added_tokens":[`, `"added_tokens":null,"x":[`, "added_tokens: null where a list is expected"},
		{"null in a list", `"pretokenizers":[`, `"pretokenizers":[null,`, "element 0: null"},
		{"null for the vocabulary", `"vocab":{`, `"vocab":null,"x":{`, "null where an object is expected"},
		{"merge without a space", `["a","b"]`, `"ab"`, `merge "ab" is not a pair of tokens`},
		{"merge with two spaces", `["a","b"]`, `"a  b"`, `merge "a  b" is not a pair of tokens`},
		{"merge with an empty side", `["a","b"]`, `["","ab"]`, `merge 0 ("", "ab") with a token`},
		{"merge of one", `["a","b"]`, `["ab"]`, "a merge of 1 tokens"},
		{"merge of three", `["a","b"]`, `["a","b","c"]`, "a merge of 3 tokens"},
		{"merge of a number", `["a","b"]`, `["a",1]`, "a number where a string is expected"},
		{"merge a number", `["a","b"]`, `1`, "a number where a list is expected"},
		{"merges of two kinds", `["a","b"]`, `"a b"`, "not in the format of the first merge"},
		{"half a number", `"ab":256`, `"ab":256.`, "where a digit is expected"},
		{"no value", `"fuse_unk":false`, `"fuse_unk":falsch`, `"f" where a value is expected`},
		{"unknown option", `"fuse_unk":false`, `"fuse_unk":false,"fuse_byte":true`, "fuse_byte: unknown field"},
		{"text where a flag is wanted", `"fuse_unk":false`, `"fuse_unk":"false"`, "a string where a boolean is expected"},
	} {
		file := strings.Replace(whole, test.old, test.new, 1)
		if file == whole {
			t.Errorf("%s: nothing to change", test.name)
		}
		_, err := bpe.Parse([]byte(file), bpe.Options{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
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

// TestLoadHostile checks that Load and LoadTiktoken reject a path that is not a regular file.
func TestLoadHostile(t *testing.T) {
	t.Parallel()
	for _, file := range []string{bpe.FileJSON, bpe.FileTiktoken} {
		dir := t.TempDir()
		if err := syscall.Mkfifo(filepath.Join(dir, file), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := bpe.Load(os.DirFS(dir), bpe.Options{Experimental: true}); !errors.Is(err, bpe.ErrCorrupt) || !strings.Contains(err.Error(), file+": corrupt tokenizer: is a named pipe") {
			t.Errorf("pipe as %s: %v", file, err)
		}
		pointer := fstest.MapFS{file: {Data: []byte("version https://git-lfs.github.com/spec/v1\noid sha256:1\n")}}
		if _, err := bpe.Load(pointer, bpe.Options{Experimental: true}); !errors.Is(err, bpe.ErrCorrupt) || !strings.Contains(err.Error(), "git lfs pull") {
			t.Errorf("pointer as %s: %v", file, err)
		}
	}
}
