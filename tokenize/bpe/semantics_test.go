package bpe_test

import (
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// addedFile is a small vocabulary with added tokens of every kind.
func addedFile() []byte {
	kinds := []object{
		{"id": 259, "content": "<a<", "special": true},
		{"id": 260, "content": "<b"},
		{"id": 261, "content": "<b>x"},
		{"id": 262, "content": "ca", "single_word": true},
		{"id": 263, "content": "<l>", "lstrip": true},
		{"id": 264, "content": "<r>", "rstrip": true},
		{"id": 265, "content": "e\u0301", "normalized": true},
	}
	return smallFile(map[string]any{"added_tokens": flagged(kinds...)})
}

// TestAddedSemantics pins what the reference engine does with added tokens, on a
// vocabulary small enough to read. TestPeerVariants compares the same file with
// that engine: do not fix the test.
func TestAddedSemantics(t *testing.T) {
	t.Parallel()
	tok, err := bpe.Parse(addedFile(), bpe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, text string
		mode       bpe.AddedMode
		want       []int32
	}{
		{"leftmost", "<a<b", bpe.AddedAll, []int32{259, 'b'}},
		{"longest", "<b>x<b>y", bpe.AddedAll, []int32{261, 260, '>', 'y'}},
		{"a skipped token is stepped over", "<a<b", bpe.AddedNotSpecial, []int32{'<', 'a', '<', 'b'}},
		{"none", "<b", bpe.AddedNone, []int32{'<', 'b'}},
		{"single word", "ca xca ca_ (ca)", bpe.AddedAll, []int32{262, ' ', 'x', 'c', 'a', ' ', 'c', 'a', '_', ' ', '(', 262, ')'}},
		{"left strip", "b \t<l>b", bpe.AddedAll, []int32{'b', 263, 'b'}},
		{"right strip", "b<r> \u3000 b", bpe.AddedAll, []int32{'b', 264, 'b'}},
		{"both strip one space", "<r> <l>", bpe.AddedAll, []int32{264, 263}},
		{"normalized content", "\u00e9e\u0301", bpe.AddedAll, []int32{265, 265}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			checkIDs(t, test.text, encode(t, tok, test.text, bpe.EncodeOptions{Added: test.mode}), test.want)
		})
	}
}

// TestUnreachable: an entry that no merges lead to is found whole with
// ignore_merges and never without.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for ignore, want := range map[bool][]int32{true: {258}, false: {' ', 'a'}} {
		tok, err := bpe.Parse(smallFile(map[string]any{
			"model.ignore_merges": ignore, "model.merges": []string{"a b", "ab c"},
		}), bpe.Options{})
		if err != nil {
			t.Fatal(err)
		}
		checkIDs(t, " a", encode(t, tok, " a", bpe.EncodeOptions{}), want)
	}
}

// TestComposition: NFC of Unicode 9.0, seen through a tokenizer that composes.
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
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := decode(t, tok, encode(t, tok, test.in, bpe.EncodeOptions{}), bpe.DecodeOptions{}); got != test.want {
				t.Errorf("NFC(%+q) = %+q, want %+q", test.in, got, test.want)
			}
		})
	}
}
