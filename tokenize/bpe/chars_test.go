package bpe_test

import (
	"fmt"
	"maps"
	"slices"
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
		var got []string
		for _, id := range encode(t, tok, test.text, bpe.EncodeOptions{}) {
			got = append(got, tok.Piece(id))
			if back, ok := tok.ID(tok.Piece(id)); !ok || back != id {
				t.Errorf("ID(Piece(%d)) = %d, %v", id, back, ok)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: tokens of %q = %q, want %q", test.name, test.text, got, test.want)
		}
	}
}
