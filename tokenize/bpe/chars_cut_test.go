package bpe_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// checkCuts compares a random tokenizer of characters with a copy that does not cut texts.
func checkCuts(t *testing.T, seed uint64) {
	t.Helper()
	c := randomCharCase(rand.New(rand.NewPCG(seed, 11)))
	tok, err := bpe.Parse(c.File, bpe.Options{})
	if err != nil {
		return // rejected
	}
	slow := parseFile(t, c.File)
	slow.ForgetCuts()
	for _, text := range append(c.Texts, strings.Join(c.Texts, "")) {
		got, want := encode(t, tok, text, bpe.EncodeOptions{}), encode(t, slow, text, bpe.EncodeOptions{})
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("seed %d: ids of %q = %v, without cuts %v\n%s", seed, text, got, want, c.brief())
		}
		checkMarks(t, tok, text, want)
	}
}

// checkMarks continues the encoding at every mark and compares the ids.
func checkMarks(t *testing.T, tok *bpe.Tokenizer, text string, want []int32) {
	t.Helper()
	ids, marks, err := tok.AppendMarked(nil, nil, []byte(text), bpe.Mark{})
	if err != nil || !slices.Equal(ids, want) {
		t.Errorf("AppendMarked(%q) = %v, %v, want %v", text, ids, err, want)
	}
	for _, m := range marks {
		rest, _, err := tok.AppendMarked(slices.Clone(ids[:m.IDs]), nil, []byte(text[m.Text:]), m)
		if err != nil || !slices.Equal(rest, want) {
			t.Errorf("AppendMarked(%q) on from %v = %v, %v, want %v", text, m, rest, err, want)
		}
	}
}

// TestCharCuts checks that cutting at positions that no merge crosses never changes the ids.
func TestCharCuts(t *testing.T) {
	t.Parallel()
	for i := range uint64(1000) {
		checkCuts(t, *seed+i)
	}
}
