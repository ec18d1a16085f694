package bpe_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// TestCharCuts checks, for random tokenizers of characters, that cutting at positions that no merge
// crosses never changes the ids, nor does continuing at any mark.
func TestCharCuts(t *testing.T) {
	t.Parallel()
	for i := range uint64(1000) {
		c := randomCharCase(rand.New(rand.NewPCG(*seed+i, 11)))
		tok, err := bpe.Parse(c.File, bpe.Options{})
		if err != nil {
			continue // rejected
		}
		slow := parseFile(t, c.File)
		slow.ForgetCuts()
		for _, text := range append(c.Texts, strings.Join(c.Texts, "")) {
			want := encode(t, slow, text, bpe.EncodeOptions{})
			checkIDs(t, text, encode(t, tok, text, bpe.EncodeOptions{}), want)
			ids, marks := marked(t, tok, nil, nil, text, bpe.Mark{})
			checkIDs(t, text, ids, want)
			for _, m := range marks {
				rest, _ := marked(t, tok, slices.Clone(ids[:m.IDs]), nil, text[m.Text:], m)
				checkIDs(t, text, rest, want)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d, with cuts or continued, want as without\n%s", *seed+i, c.brief())
		}
	}
}
