package bpe_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// addedFile returns a small tokenizer.json with added tokens of every kind.
func addedFile() []byte { return smallFile(addedKinds()) }

func addedKinds() map[string]any {
	return map[string]any{"added_tokens": []object{
		addedPart(259, "<a<", "special"),
		addedPart(260, "<b"),
		addedPart(261, "<b>x"),
		addedPart(262, "ca", "single_word"),
		addedPart(263, "<l>", "lstrip"),
		addedPart(264, "<r>", "rstrip"),
		addedPart(265, "e\u0301", "normalized"),
		addedPart(266, "\n", "lstrip", "rstrip"),
	}}
}

// TestSemantics pins the reference engine's ids for changes of the small file, whose vocabulary is
// small enough to read. TestPeerVariants compares the added tokens with that engine: do not fix the test.
func TestSemantics(t *testing.T) {
	t.Parallel()
	kinds := addedKinds()
	texts := []string{"a b", "ab c", "Ġ a"}
	var all, none, post bpe.EncodeOptions
	none.Added, post.PostProcess = bpe.AddedNone, true
	for _, test := range []struct {
		name    string
		changes map[string]any
		text    string
		opts    bpe.EncodeOptions
		want    []int32
	}{
		{"leftmost", kinds, "<a<b", all, []int32{259, 'b'}},
		{"longest", kinds, "<b>x<b>y", all, []int32{261, 260, '>', 'y'}},
		{"no added tokens", kinds, "<b", none, []int32{'<', 'b'}},
		{"single word", kinds, "ca xca ca_ (ca)", all, []int32{262, ' ', 'x', 'c', 'a', ' ', 'c', 'a', '_', ' ', '(', 262, ')'}},
		{"left strip", kinds, "b \t<l>b", all, []int32{'b', 263, 'b'}},
		{"right strip", kinds, "b<r> \u3000 b", all, []int32{'b', 264, 'b'}},
		{"both strip one space", kinds, "<r> <l>", all, []int32{264, 263}},
		{"swallowed", kinds, "b<r> \n ", all, []int32{'b', 264}},
		{"normalized content", kinds, "\u00e9e\u0301", all, []int32{265, 265}},
		{"merges", nil, "abc ab<s>ab", all, []int32{257, ' ', 256, 259, 256}},
		{"merges as texts", object{"model.merges": texts}, "abc ab<s>ab", all, []int32{257, ' ', 256, 259, 256}},
		{"post-processor that adds nothing", nil, "ab", post, []int32{256}},
		{"template", object{"post_processor": template("<s>", "<s>", 259, 259)}, "ab", post, []int32{259, 256, 259}},
		{"template unused", object{"post_processor": template("<s>", "<s>", 259, 259)}, "ab", all, []int32{256}},
		{"token of no merge, as a whole word", object{"model.ignore_merges": true, "model.merges": texts[:2]}, " a", all, []int32{258}},
		{"token of no merge", object{"model.merges": texts[:2]}, " a", all, []int32{' ', 'a'}},
		{"no merges", object{"model.merges": []any{}}, "abc", all, []int32{'a', 'b', 'c'}},
		{"no merges in a long word", object{"model.merges": []any{}}, strings.Repeat("abé", 20), all, slices.Repeat([]int32{'a', 'b', 0xC3, 0xA9}, 20)},
		{"options for unknown characters, of which a vocabulary with all bytes has none", object{
			"model.byte_fallback": true, "model.fuse_unk": true, "model.unk_token": "<none>",
		}, "abc ab<s>ab\x00", all, []int32{257, ' ', 256, 259, 256, 0}},
	} {
		tok := parseFile(t, smallFile(test.changes))
		checkIDs(t, test.name+": "+test.text, encode(t, tok, test.text, test.opts), test.want)
	}
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
