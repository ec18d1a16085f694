package bpe_test

import (
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// addedFile returns a small tokenizer.json with added tokens of every kind.
func addedFile() []byte {
	kinds := []object{
		{"id": 259, "content": "<a<", "special": true},
		{"id": 260, "content": "<b"},
		{"id": 261, "content": "<b>x"},
		{"id": 262, "content": "ca", "single_word": true},
		{"id": 263, "content": "<l>", "lstrip": true},
		{"id": 264, "content": "<r>", "rstrip": true},
		{"id": 265, "content": "e\u0301", "normalized": true},
		{"id": 266, "content": "\n", "lstrip": true, "rstrip": true},
	}
	return smallFile(map[string]any{"added_tokens": flagged(kinds...)})
}

// TestAddedSemantics pins the reference engine's treatment of added tokens, on a vocabulary small
// enough to read. TestPeerVariants compares the same file with that engine: do not fix the test.
func TestAddedSemantics(t *testing.T) {
	t.Parallel()
	tok := parseFile(t, addedFile())
	for _, test := range []struct {
		name, text string
		mode       bpe.AddedMode
		want       []int32
	}{
		{"leftmost", "<a<b", bpe.AddedAll, []int32{259, 'b'}},
		{"longest", "<b>x<b>y", bpe.AddedAll, []int32{261, 260, '>', 'y'}},
		{"none", "<b", bpe.AddedNone, []int32{'<', 'b'}},
		{"single word", "ca xca ca_ (ca)", bpe.AddedAll, []int32{262, ' ', 'x', 'c', 'a', ' ', 'c', 'a', '_', ' ', '(', 262, ')'}},
		{"left strip", "b \t<l>b", bpe.AddedAll, []int32{'b', 263, 'b'}},
		{"right strip", "b<r> \u3000 b", bpe.AddedAll, []int32{'b', 264, 'b'}},
		{"both strip one space", "<r> <l>", bpe.AddedAll, []int32{264, 263}},
		{"swallowed", "b<r> \n ", bpe.AddedAll, []int32{'b', 264}},
		{"normalized content", "\u00e9e\u0301", bpe.AddedAll, []int32{265, 265}},
	} {
		checkIDs(t, test.text, encode(t, tok, test.text, bpe.EncodeOptions{Added: test.mode}), test.want)
	}
}

// TestAddedIDs checks that new added tokens are numbered from the vocabulary's size, despite holes.
func TestAddedIDs(t *testing.T) {
	t.Parallel()
	vocab := map[string]int{}
	for b := range 256 {
		vocab[spell(byte(b))] = b
	}
	vocab["ab"], vocab["abc"], vocab["Ġa"] = 256, 5000, 258
	tok := parseFile(t, smallFile(map[string]any{
		"model.vocab":  vocab,
		"added_tokens": []object{addedPart(5000, "abc"), addedPart(259, "<s>")},
	}))
	checkIDs(t, "abc<s>", encode(t, tok, "abc<s>", bpe.EncodeOptions{}), []int32{5000, 259})
}

// TestAddedDecoded checks that a normalized added token decodes to its normalized content.
// SkipSpecial skips it only if a special token has that content.
func TestAddedDecoded(t *testing.T) {
	t.Parallel()
	tok := parseFile(t, smallFile(map[string]any{
		"added_tokens": []object{addedPart(259, "\u212b", "normalized", "special"), addedPart(260, "e\u0301", "normalized"), addedPart(233, "é", "special")},
	}))
	for _, skip := range []bool{false, true} {
		// U+00C5 and U+00E9 spell bytes in the byte-level alphabet.
		want := map[bool]string{false: "a\uFFFDb\uFFFDc", true: "a\uFFFDbc"}[skip]
		if got := decode(t, tok, []int32{'a', 259, 'b', 260, 'c'}, bpe.DecodeOptions{SkipSpecial: skip}); got != want {
			t.Errorf("special tokens skipped %v: text = %q, want %q", skip, got, want)
		}
	}
	if got := tok.Piece(259); got != "\u212b" {
		t.Errorf("Piece(259) = %q, want the content", got)
	}
}

// TestUnreachable checks that a token that no merges make is matched as a whole word with
// ignore_merges, and never without.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for ignore, want := range map[bool][]int32{true: {258}, false: {' ', 'a'}} {
		tok := parseFile(t, smallFile(map[string]any{
			"model.ignore_merges": ignore, "model.merges": []string{"a b", "ab c"},
		}))
		checkIDs(t, " a", encode(t, tok, " a", bpe.EncodeOptions{}), want)
	}
}

// TestComposition checks NFC of Unicode 9.0 through a tokenizer that composes.
func TestComposition(t *testing.T) {
	t.Parallel()
	tok := bpetest.Tokenizer(t, "qwen3")
	for _, test := range []struct{ name, in, want string }{
		{"composed", "e\u0301", "\u00e9"},
		{"singleton", "\u212b", "\u00c5"},
		{"excluded", "\u0958", "\u0915\u093c"},
		{"reordered, neighbouring classes", "x\u064c\u064b", "x\u064b\u064c"},
		{"reordered and composed", "a\u0302\u0323", "\u1ead"},
		{"blocked", "a\u0308\u0301\u0308", "\u00e4\u0301\u0308"},
		{"marks first", "\u0301a", "\u0301a"},
		{"hangul", "\u1112\u1161\u11ab\u11ab", "\ud55c\u11ab"},
		{"hangul syllable and final", "\uac00\u11a8", "\uac01"},
		{"two starters", "\u09c7\u09be", "\u09cb"},
		{"assigned after 9.0", "a\u1df6\u0301", "a\u1df6\u0301"},
		{"unchanged among changed", "abc e\u0301 def \u212b ghi", "abc \u00e9 def \u00c5 ghi"},
	} {
		if got := decode(t, tok, encode(t, tok, test.in, bpe.EncodeOptions{}), bpe.DecodeOptions{}); got != test.want {
			t.Errorf("%s: NFC(%+q) = %+q, want %+q", test.name, test.in, got, test.want)
		}
	}
}

// TestNoMerges checks a vocabulary of single bytes.
func TestNoMerges(t *testing.T) {
	t.Parallel()
	tok := parseFile(t, smallFile(map[string]any{"model.merges": []any{}}))
	for _, text := range []string{"abc", strings.Repeat("abé", 20)} {
		got := encode(t, tok, text, bpe.EncodeOptions{})
		want := []int32{}
		for _, b := range []byte(text) {
			want = append(want, int32(b))
		}
		checkIDs(t, text, got, want)
	}
}
