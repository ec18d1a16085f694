package bpe_test

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// awkward returns a tokenizer with a random vocabulary that has all bytes, and its generator.
func awkward(t *testing.T, k int) (file []byte, tok *bpe.Tokenizer, d *byteGenerator) {
	t.Helper()
	d = newByteGenerator(rand.New(rand.NewPCG(*seed, uint64(k))))
	d.few, d.allBytes = true, true
	file = smallFile(map[string]any{
		"added_tokens": []object{}, "normalizer": nil, "model": d.byteModel(),
		"pre_tokenizer": splitPart(bpe.PatternCL100K, "Isolated", false),
	})
	return file, parseFile(t, file), d
}

// word returns a word of the letters, often with a repetition.
func (d *byteGenerator) word() string {
	switch d.IntN(8) {
	case 0:
		return strings.Repeat(d.pick(d.letters...)+d.text(11, d.letters), 1+d.IntN(20))
	case 1:
		return strings.Repeat(d.pick(d.letters...), 1+d.IntN(200))
	}
	return d.pick(d.letters...) + d.text(11, d.letters)
}

// TestRandomVocabularies checks, on vocabularies with awkward merges, that the tokens equal the
// result of merging one pair at a time.
func TestRandomVocabularies(t *testing.T) {
	t.Parallel()
	vocabularies := 3000
	if testing.Short() {
		vocabularies = 300
	}
	for k := range vocabularies {
		file, tok, d := awkward(t, k)
		slow := newSlowTokenizer(t, file)
		for range 60 {
			word := d.word()
			if got, want := encode(t, tok, word, bpe.EncodeOptions{}), slow.encode(word); !slices.Equal(got, want) {
				t.Fatalf("AppendTokens(%q) = %v, want %v (-seed %d, vocabulary %d)\n%s", word, got, want, *seed, k, file)
			}
		}
	}
}

// TestTries checks that the number of tokens tried is linear in the length of the text, even for a
// vocabulary designed to mislead the search.
func TestTries(t *testing.T) {
	t.Parallel()
	count := func(name string, tok *bpe.Tokenizer, unit string) {
		t.Helper()
		const n = 1000
		short, long := tok.Tries(strings.Repeat(unit, n/len(unit))), tok.Tries(strings.Repeat(unit, 8*n/len(unit)))
		if long > 12*short+500 || long > 8*n*40 {
			t.Errorf("%s, %q: %d tokens are tried in %d bytes, %d in %d", name, unit, short, n, long, 8*n)
		}
	}
	units := []string{"a", "ab", "aab", "abc", "abcab", "ba", " ", "=", "\u00e9", "\u4e2d", "0", "0123456789", "aaaaaaaaaaaaaaab", "中文"}
	for _, name := range []string{"qwen3", "gpt-oss"} {
		for _, unit := range units {
			count(name, bpetest.Tokenizer(t, name), unit)
		}
	}
	for k := range 100 {
		_, tok, d := awkward(t, k)
		for range 10 {
			count(fmt.Sprintf("vocabulary %d (-seed %d)", k, *seed), tok, d.word())
		}
	}
}

// TestGateMemoryOfLongWord checks that a word at the limit needs little memory, none of it kept.
func TestGateMemoryOfLongWord(t *testing.T) {
	if raceEnabled {
		t.Skip(oneGoroutine)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties the pool of encoders
	random := randomLetters(rand.New(rand.NewPCG(1, 1)), lowerCase, bpe.MaxPretoken)
	for what, text := range map[string]string{"one letter": strings.Repeat("a", bpe.MaxPretoken), "random letters": random} {
		for _, name := range []string{"qwen3", "gpt-oss"} {
			tok := bpetest.Tokenizer(t, name)
			ids := encode(t, tok, text, bpe.EncodeOptions{})
			const limit = 1 << 20
			took := uint64(limit + 1)
			for try := 0; took > limit && try < 3; try++ { // the pool has an encoder for each processor
				took = allocated(func() { ids, _ = tok.AppendTokens(ids[:0], text) })
			}
			t.Logf("%s, %s of %d bytes: %d bytes allocated beside %d ids", name, what, len(text), took, len(ids))
			if took > limit || len(ids) == 0 {
				t.Errorf("%s, %s: %d bytes allocated beside %d ids, want at most %d", name, what, took, len(ids), limit)
			}
		}
	}
}

// TestScratchGivenBack checks that the merge memory of a long unknown word is freed.
func TestScratchGivenBack(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	tok := parseFile(t, charFile(map[string]any{"model.byte_fallback": false, "model.fuse_unk": false}))
	const n = 1 << 20
	if ids := encode(t, tok, strings.Repeat("z", n), bpe.EncodeOptions{}); len(ids) < n {
		t.Fatalf("%d ids for %d unknown characters", len(ids), n)
	}
	if kept := tok.Scratch(); kept > 1<<20 {
		t.Errorf("%d bytes are kept, want at most %d", kept, 1<<20)
	}
}
