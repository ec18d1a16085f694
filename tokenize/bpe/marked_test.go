package bpe_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// TestMarked encodes random texts with many added tokens in parts. It checks that the ids do not
// change, that a cut at any mark does not change them, and that a text can continue from the last
// safe mark of another text with the same beginning.
func TestMarked(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	for _, name := range bpetest.Names() {
		t.Run("tokenizer="+name, func(t *testing.T) {
			t.Parallel()
			tok := bpetest.Tokenizer(t, name)
			rng := rand.New(rand.NewPCG(seed, 0))
			marks, reused := 0, 0
			for range 300 {
				a := markedText(rng, tok, 1+rng.IntN(24))
				idsA, marksA := marked(t, tok, nil, nil, a, bpe.Mark{})
				if !checkIDs(t, a, idsA, encode(t, tok, a, bpe.EncodeOptions{})) {
					t.Fatalf("seed %d", seed)
				}
				for _, m := range marksA {
					marks++
					parts := slices.Concat(encode(t, tok, a[:m.Text], bpe.EncodeOptions{}), encode(t, tok, a[m.Text:], bpe.EncodeOptions{}))
					if !slices.Equal(parts, idsA) || len(encode(t, tok, a[:m.Text], bpe.EncodeOptions{})) != m.IDs {
						t.Fatalf("seed %d: %q cut at %+v has other ids", seed, a, m)
					}
				}

				// b shares with a a prefix that can end within an added token.
				n := rng.IntN(len(a) + 1)
				b := strings.ToValidUTF8(a[:n], "") + markedText(rng, tok, rng.IntN(6))
				at := lastSafe(marksA, a, b, tok.LongestAdded())
				if at.Text > 0 {
					reused++
				}
				idsB, _ := marked(t, tok, slices.Clone(idsA[:at.IDs]), nil, b[at.Text:], at)
				if !checkIDs(t, b, idsB, encode(t, tok, b, bpe.EncodeOptions{})) {
					t.Fatalf("seed %d: from %+v of %q", seed, at, a)
				}
			}
			if marks == 0 || reused == 0 {
				t.Errorf("%d marks, %d texts went on from one: nothing was tested", marks, reused)
			}
		})
	}
}

// lastSafe returns the last mark of a from which b can continue.
func lastSafe(marks []bpe.Mark, a, b string, margin int) bpe.Mark {
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	at := bpe.Mark{}
	for _, m := range marks {
		if m.Text <= same-margin {
			at = m
		}
	}
	return at
}

func marked(t *testing.T, tok *bpe.Tokenizer, ids []int32, marks []bpe.Mark, text string, at bpe.Mark) ([]int32, []bpe.Mark) {
	t.Helper()
	ids, marks, err := tok.AppendMarked(ids, marks, []byte(text), at)
	if err != nil {
		t.Fatal(err)
	}
	return ids, marks
}

// markedText returns n pieces of text, including added tokens and prefixes of added tokens.
func markedText(rng *rand.Rand, tok *bpe.Tokenizer, n int) string {
	added := tok.Added()
	var s strings.Builder
	for range n {
		switch rng.IntN(5) {
		case 0, 1:
			s.WriteString(added[rng.IntN(len(added))].Content)
		case 2:
			c := added[rng.IntN(len(added))].Content
			s.WriteString(strings.ToValidUTF8(c[:rng.IntN(len(c)+1)], ""))
		default:
			s.WriteString([]string{"a", " ", "\n", "  \n\n", "word", " word", "12345", "é", "e\u0301", "\u0301", "漢字", "🙂", "'s", "<", "<|", "|>", "\u200d"}[rng.IntN(17)])
		}
	}
	return s.String()
}
