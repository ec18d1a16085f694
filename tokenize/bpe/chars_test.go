package bpe_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// charFile returns a small tokenizer.json with a vocabulary of characters like Llama 2's, with
// changes as in smallFile. Id 0 is <unk>, 1 is <s>, 2 is </s>; then come the 256 bytes, then words.
func charFile(changes map[string]any) []byte {
	words := []string{"▁", "a", "b", "c", "d", "é", "日", "本", "x", "<", ">", "\n", "ab", "abc", "▁a", "▁▁", "▁ab", "日本", "\n\n"}
	vocab := map[string]int{"<unk>": 0, "<s>": 1, "</s>": 2}
	for b := range 256 {
		vocab[fmt.Sprintf("<0x%02X>", b)] = 3 + b
	}
	for i, w := range words {
		vocab[w] = 259 + i
	}
	parts := map[string]any{
		"model.vocab":         vocab,
		"model.merges":        []any{[]string{"a", "b"}, []string{"▁", "ab"}, []string{"ab", "c"}, []string{"▁", "a"}, []string{"▁", "▁"}, []string{"日", "本"}, []string{"\n", "\n"}},
		"model.byte_fallback": true, "model.fuse_unk": true, "model.unk_token": "<unk>",
		"normalizer":    object{"type": "Sequence", "normalizers": []object{{"type": "Prepend", "prepend": "▁"}, replacePart(" ", "▁")}},
		"pre_tokenizer": nil,
		"added_tokens":  []object{addedPart(1, "<s>", "special"), addedPart(2, "</s>", "special")},
		"decoder": object{"type": "Sequence", "decoders": []object{
			replacePart("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0},
		}},
	}
	maps.Copy(parts, changes)
	return smallFile(parts)
}

func replacePart(from, to string) object {
	return object{"type": "Replace", "pattern": object{"String": from}, "content": to}
}

// addedPart returns an added token with the given flags set.
func addedPart(id int, content string, flags ...string) object {
	o := object{"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false}
	for _, f := range flags {
		o[f] = true
	}
	return o
}

// TestChars pins the ids of a vocabulary of characters. TestPeerEdits uses the same file.
func TestChars(t *testing.T) {
	t.Parallel()
	tok := parseFile(t, charFile(nil))
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"empty", "", nil},
		{"words", "abc ab a", []string{"▁ab", "c", "▁ab", "▁a"}},
		{"spaces", "a   b", []string{"▁a", "▁▁", "▁", "b"}},
		{"a section after a token", "<s>ab</s> a", []string{"<s>", "▁ab", "</s>", "▁", "▁a"}},
		{"bytes", "a😀", []string{"▁a", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"}},
		{"Han", "日本日", []string{"▁", "日本", "日"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ids := encode(t, tok, test.text, bpe.EncodeOptions{})
			var got []string
			for _, id := range ids {
				got = append(got, tok.Piece(id))
				if back, ok := tok.ID(tok.Piece(id)); !ok || back != id {
					t.Errorf("ID(Piece(%d)) = %d, %v", id, back, ok)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("tokens of %q = %q, want %q", test.text, got, test.want)
			}
		})
	}
}

// TestCharsRefused checks that unimplemented features are rejected for a vocabulary of characters.
func TestCharsRefused(t *testing.T) {
	t.Parallel()
	decoders := func(parts ...object) map[string]any {
		return map[string]any{"decoder": object{"type": "Sequence", "decoders": parts}}
	}
	strip := func(start, stop int) object {
		return object{"type": "Strip", "content": " ", "start": start, "stop": stop}
	}
	for _, test := range []struct {
		name    string
		changes map[string]any
		want    string
	}{
		{"bytes are missing", map[string]any{"model.byte_fallback": false, "model.unk_token": "<none>"}, "256 of 256 are missing"},
		{"pattern", map[string]any{"pre_tokenizer": object{"type": "Whitespace"}}, "pre_tokenizer Whitespace"},
		{"replace by a pattern", map[string]any{"normalizer": object{"type": "Replace", "pattern": object{"Regex": "a+"}, "content": "b"}}, `the pattern "a+"`},
		{"replace of nothing", map[string]any{"normalizer": replacePart("", "b")}, "Replace of an empty string"},
		{"prepend of nothing", map[string]any{"normalizer": object{"type": "Prepend", "prepend": ""}}, "Prepend of an empty string"},
		{"growth", map[string]any{"normalizer": replacePart("a", strings.Repeat("b", 100))}, "64 times longer"},
		{"steps", map[string]any{"normalizer": object{"type": "Sequence", "normalizers": slices.Repeat([]object{{"type": "NFC"}}, 100)}}, "100 steps"},
		{"long prepend", map[string]any{"normalizer": object{"type": "Prepend", "prepend": strings.Repeat("a", 2000)}}, "prepends more than 64 bytes"},
		{"long prepend by a replacement", map[string]any{"normalizer": object{"type": "Sequence", "normalizers": []object{{"type": "Prepend", "prepend": "aa"}, replacePart("a", strings.Repeat("b", 40))}}}, "prepends more than 64 bytes"},
		{"stages", map[string]any{"pre_tokenizer": object{"type": "Sequence", "pretokenizers": slices.Repeat([]object{{"type": "Digits", "individual_digits": true}}, 17)}}, "Sequence of 17"},
		{"normalized to a long one", map[string]any{
			"normalizer":   replacePart("a", strings.Repeat("b", 64)),
			"added_tokens": []object{addedPart(278, strings.Repeat("a", 1000), "normalized")},
		}, "64000 bytes after normalization"},
		{"growth of the decoder", decoders(replacePart("a", strings.Repeat("b", 50)), replacePart("b", "cc")), "64 times longer"},
		{"first and a normalizer", map[string]any{
			"pre_tokenizer": object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
			"added_tokens":  []object{addedPart(1, "<s>", "normalized")},
		}, "prepend_scheme first"},
		{"normalized to nothing", map[string]any{"normalizer": replacePart("<s>", ""), "added_tokens": []object{addedPart(1, "<s>", "normalized")}}, "empty after normalization"},
		{"normalized to the same", map[string]any{
			"normalizer":   replacePart("b", "a"),
			"added_tokens": []object{addedPart(260, "a", "normalized"), addedPart(261, "b", "normalized")},
		}, `both normalize to "a"`},
		{"no decoder", map[string]any{"decoder": nil}, "decoder null"},
		{"byte level", map[string]any{"decoder": object{"type": "ByteLevel"}}, "decoder ByteLevel"},
		{"strip at the end", decoders(strip(0, 1)), "stop 1"},
		{"replace after fuse", decoders(object{"type": "Fuse"}, replacePart("▁", " ")), "Replace after Fuse"},
		{"fallback twice", decoders(object{"type": "ByteFallback"}, object{"type": "ByteFallback"}), "two ByteFallback"},
	} {
		_, err := bpe.Parse(charFile(test.changes), bpe.Options{})
		if !errors.Is(err, bpe.ErrUnsupported) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Parse = %v, want ErrUnsupported with %q", test.name, err, test.want)
		}
	}
}

// TestUnknownUnneeded checks that a byte-level vocabulary, which has all bytes, ignores the model's
// options for unknown characters.
func TestUnknownUnneeded(t *testing.T) {
	t.Parallel()
	tok := parseFile(t, smallFile(map[string]any{"model.byte_fallback": true, "model.fuse_unk": true, "model.unk_token": "<none>"}))
	checkIDs(t, "abc ab<s>ab\x00", encode(t, tok, "abc ab<s>ab\x00", bpe.EncodeOptions{}), []int32{257, 32, 256, 259, 256, 0})
}
