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
	slow, err := bpe.Parse(c.File, bpe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	slow.ForgetCuts()
	for _, text := range append(c.Texts, strings.Join(c.Texts, "")) {
		got, want := encode(t, tok, text, bpe.EncodeOptions{}), encode(t, slow, text, bpe.EncodeOptions{})
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("seed %d: ids of %q = %v, without cuts %v\n%s", seed, text, got, want, c.brief())
		}
		checkMarks(t, tok, text, want)
	}
	for _, ids := range c.IDs {
		for _, opts := range []bpe.DecodeOptions{{}, {SkipSpecial: true}} {
			want := decode(t, tok, ids, opts)
			if got := streamed(t, tok, ids, opts, want); got != want {
				t.Errorf("seed %d: stream of %v = %q, want %q\n%s", seed, ids, got, want, c.brief())
			}
		}
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

func FuzzChars(f *testing.F) {
	for i := range uint64(8) {
		f.Add(i)
	}
	f.Fuzz(checkCuts)
}

// FuzzCharStream checks that a stream of byte tokens, in any order and any chunks, returns the same
// text as a single call, and always a prefix of it.
func FuzzCharStream(f *testing.F) {
	var toks []*bpe.Tokenizer
	for _, changes := range []map[string]any{
		nil,
		{"decoder": object{"type": "Metaspace", "replacement": "▁"}},
		{"decoder": object{"type": "Sequence", "decoders": []object{{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁"}, {"type": "Strip", "content": "a", "start": 2, "stop": 0}}}},
	} {
		tok, err := bpe.Parse(charFile(changes), bpe.Options{})
		if err != nil {
			f.Fatal(err)
		}
		toks = append(toks, tok)
	}
	f.Add(byte(0), []byte("\xe6\x97\xa5 \x00ab\xff"))
	f.Add(byte(1), []byte("\xe2\x96\x81\xe2\x96"))
	f.Add(byte(2), []byte("  a"))
	f.Fuzz(func(t *testing.T, which byte, raw []byte) {
		tok := toks[int(which)%len(toks)]
		var ids []int32
		for i := 0; i < len(raw); i++ {
			id := 3 + int32(raw[i]) // the byte token
			if raw[i]%4 == 3 && i+1 < len(raw) {
				i++
				id = int32(raw[i]) % 22
				if id > 2 {
					id += 256
				}
			}
			ids = append(ids, id)
		}
		for _, opts := range []bpe.DecodeOptions{{}, {SkipSpecial: true}} {
			want := decode(t, tok, ids, opts)
			if got := streamed(t, tok, ids, opts, want); got != want {
				t.Errorf("stream of %v = %q, want %q", ids, got, want)
			}
		}
	})
}
