package bpe_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// randomVocabulary returns a tokenizer.json over a few letters with merges that no training
// produces: merges of tokens that no merge makes, several merges to one token, duplicate merges,
// and an order unrelated to the sizes of the tokens.
func randomVocabulary(rng *rand.Rand, letters []string) []byte {
	pieces := []string{}
	for b := range 256 {
		pieces = append(pieces, spell(byte(b)))
	}
	var some []string // pieces of the letters
	for _, l := range letters {
		for i := range len(l) {
			some = append(some, spell(l[i]))
		}
	}
	var merges [][2]string
	for range 1 + rng.IntN(30) {
		a, b := some[rng.IntN(len(some))], some[rng.IntN(len(some))]
		if len(a)+len(b) > 40 {
			continue
		}
		merges = append(merges, [2]string{a, b})
		if !slices.Contains(pieces, a+b) {
			pieces = append(pieces, a+b)
		}
		some = append(some, a+b)
	}
	// All other ways to split some tokens.
	for range rng.IntN(20) {
		p := []rune(some[rng.IntN(len(some))])
		for cut := 1; cut < len(p); cut++ {
			if a, b := string(p[:cut]), string(p[cut:]); slices.Contains(pieces, a) && slices.Contains(pieces, b) {
				merges = append(merges, [2]string{a, b})
			}
		}
	}
	switch rng.IntN(4) {
	case 0: // in the order of creation
	case 1: // a few out of order
		for range 3 {
			i, j := rng.IntN(len(merges)), rng.IntN(len(merges))
			merges[i], merges[j] = merges[j], merges[i]
		}
	case 2: // one is duplicated
		merges = append(merges, merges[rng.IntN(len(merges))])
	default:
		rng.Shuffle(len(merges), func(i, j int) { merges[i], merges[j] = merges[j], merges[i] })
	}
	rng.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	vocab := map[string]int{}
	for id, p := range pieces {
		vocab[p] = id
	}
	return smallFile(map[string]any{
		"added_tokens": []object{}, "normalizer": nil, "pre_tokenizer": splitPart(bpe.PatternCL100K, "Isolated", false),
		"model.vocab": vocab, "model.merges": merges, "model.ignore_merges": rng.IntN(4) == 0,
	})
}

// awkwardWords returns words of a few letters, random and repeated.
func awkwardWords(rng *rand.Rand, letters []string, n int) []string {
	words := make([]string, n)
	for i := range words {
		var b strings.Builder
		for range 1 + rng.IntN(12) {
			b.WriteString(letters[rng.IntN(len(letters))])
		}
		switch rng.IntN(8) {
		case 0:
			words[i] = strings.Repeat(b.String(), 1+rng.IntN(20))
		case 1:
			words[i] = strings.Repeat(letters[rng.IntN(len(letters))], 1+rng.IntN(200))
		default:
			words[i] = b.String()
		}
	}
	return words
}

// awkwardCase returns vocabulary k with n words.
func awkwardCase(k, n int) smallCase {
	rng := rand.New(rand.NewPCG(*seed, uint64(k)))
	letters := [][]string{{"a", "b"}, {"a", "b", "c"}, {"a"}, {"a", "é", "中", "丰"}}[rng.IntN(4)]
	return smallCase{File: randomVocabulary(rng, letters), Texts: awkwardWords(rng, letters, n), IDs: [][]int32{}}
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
		c := awkwardCase(k, 60)
		tok := parseFile(t, c.File)
		slow := newSlowTokenizer(t, c.File)
		for _, word := range c.Texts {
			if got, want := encode(t, tok, word, bpe.EncodeOptions{}), slow.encode(word); !slices.Equal(got, want) {
				t.Fatalf("AppendTokens(%q) = %v, want %v (-seed %d, vocabulary %d)\n%s", word, got, want, *seed, k, c.File)
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
		rng := rand.New(rand.NewPCG(*seed, uint64(k)))
		letters := []string{"a", "b", "c"}[:1+rng.IntN(3)]
		tok := parseFile(t, randomVocabulary(rng, letters))
		for range 10 {
			count(fmt.Sprintf("vocabulary %d (-seed %d)", k, *seed), tok, awkwardWords(rng, letters, 1)[0])
		}
	}
}

// TestGateMemoryOfLongWord checks that a word at the limit needs little memory, none of it kept.
func TestGateMemoryOfLongWord(t *testing.T) {
	if raceEnabled {
		t.Skip(oneGoroutine)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties the pool of encoders
	rng := rand.New(rand.NewPCG(1, 1))
	random := make([]byte, bpe.MaxPretoken)
	for i := range random {
		random[i] = 'a' + byte(rng.IntN(26))
	}
	for what, text := range map[string]string{"one letter": strings.Repeat("a", bpe.MaxPretoken), "random letters": string(random)} {
		for _, name := range []string{"qwen3", "gpt-oss"} {
			tok := bpetest.Tokenizer(t, name)
			ids := encode(t, tok, text, bpe.EncodeOptions{})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var err error
			if ids, err = tok.AppendTokens(ids[:0], text); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			const limit = 1 << 20
			if took := after.TotalAlloc - before.TotalAlloc; took > limit {
				t.Errorf("%s, %s of %d bytes: %d bytes allocated beside %d ids, want at most %d", name, what, len(text), took, len(ids), limit)
			} else {
				t.Logf("%s, %s of %d bytes: %d bytes allocated beside %d ids", name, what, len(text), took, len(ids))
			}
		}
	}
}

// TestPeerMerges compares such vocabularies with the reference engine.
func TestPeerMerges(t *testing.T) {
	python(t)
	t.Parallel()
	cases := make([]smallCase, 1000)
	for k := range cases {
		cases[k] = awkwardCase(k, 40)
	}
	for k, want := range askReference[smallAnswer](t, "cases", nil, cases) {
		tok, err := bpe.Parse(cases[k].File, bpe.Options{})
		if err != nil || want.Error != "" {
			t.Fatalf("vocabulary %d: Parse = %v, the reference engine returned %q (-seed %d)", k, err, want.Error, *seed)
		}
		for i, word := range cases[k].Texts {
			if got := encode(t, tok, word, bpe.EncodeOptions{}); !slices.Equal(got, want.IDs[i]) {
				t.Fatalf("AppendTokens(%q) = %v, want %v (-seed %d, vocabulary %d)\n%s", word, got, want.IDs[i], *seed, k, cases[k].File)
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
