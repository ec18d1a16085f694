package bpe_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// charCase is a random tokenizer of characters, with texts and ids for it.
type charCase struct {
	File  json.RawMessage `json:"file"`
	Texts []string        `json:"texts"`
	IDs   [][]int32       `json:"ids"`
}

// charAnswer is what the reference engine says to a charCase; null is a panic.
type charAnswer struct {
	Error   string       `json:"error"`
	IDs     [][]int32    `json:"ids"`
	Special [][]int32    `json:"special"`
	Texts   []*[2]string `json:"texts"`
}

var charAlphabet = []string{"a", "b", "c", " ", "▁", "é", "e\u0301", "日", "本", "😀", "\n", "\t", "<", ">", "x", "\u212b", "\u00a0", "_", "A", "<0x41>", "\x00", "\u0958"}

// randomCharCase draws a tokenizer in which all features meet.
func randomCharCase(rng *rand.Rand) charCase {
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	word := func(n int) string {
		var b strings.Builder
		for range 1 + rng.IntN(n) {
			b.WriteString(pick(charAlphabet...))
		}
		return b.String()
	}
	one := func(n int) bool { return rng.IntN(n) == 0 }

	vocab := map[string]int{}
	var words []string
	add := func(s string) {
		if _, ok := vocab[s]; !ok {
			vocab[s] = len(vocab)
			words = append(words, s)
		}
	}
	add("<unk>")
	missing := pick("none", "none", "some", "all")
	for b := range 256 {
		if missing == "none" || missing == "some" && (b < 0x80 || b == 0xC3 || b == 0xA9) {
			add(fmt.Sprintf("<0x%02X>", b))
		}
	}
	odd := len(words) // byte tokens and the unknown token seldom merge
	for _, c := range charAlphabet {
		if r := []rune(c); len(r) == 1 && !one(4) {
			add(c)
		}
	}
	for range rng.IntN(4) {
		add(word(4)) // no merges lead to it, as a rule
	}
	merges := []any{}
	if odd < len(words) {
		for range rng.IntN(40) {
			from := odd
			if one(40) {
				from = 0
			}
			a, b := words[from+rng.IntN(len(words)-from)], words[odd+rng.IntN(len(words)-odd)]
			add(a + b)
			merges = append(merges, []string{a, b})
		}
	}
	unk := any("<unk>")
	if missing == "none" && one(3) {
		unk = nil
	}

	norm := func() object {
		switch rng.IntN(4) {
		case 0:
			return object{"type": "NFC"}
		case 1:
			return object{"type": "Prepend", "prepend": pick("▁", "▁", "a", "", "xa")}
		case 2:
			return replacePart(" ", "▁")
		}
		return replacePart(pick(" ", "a", "ab", "▁", "A", "é", "  "), pick("▁", "b", "", "aa", "e\u0301", " "))
	}
	normalizer := any(nil)
	switch rng.IntN(4) {
	case 0:
		normalizer = norm()
	case 1:
		normalizer = object{"type": "Sequence", "normalizers": []object{norm(), {"type": "Sequence", "normalizers": []object{norm(), norm()}}}}
	case 2:
		normalizer = object{"type": "Sequence", "normalizers": []object{{"type": "Prepend", "prepend": "▁"}, replacePart(" ", "▁")}}
	}
	meta := object{"type": "Metaspace", "replacement": pick("▁", "▁", "_"), "prepend_scheme": pick("always", "first", "never"), "split": one(2)}
	split := object{"type": "Split", "pattern": object{"String": " "}, "behavior": "MergedWithPrevious", "invert": false}
	pre := []any{nil, meta, meta, split, object{"type": "Sequence", "pretokenizers": []object{meta, split}}}[rng.IntN(5)]

	step := func() object {
		switch rng.IntN(5) {
		case 0:
			return object{"type": "Strip", "content": pick(" ", "a", "▁"), "start": rng.IntN(3), "stop": 0}
		case 1:
			return object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": pick("always", "first", "never"), "split": true}
		}
		return replacePart(pick("▁", "▁", "a", "<", "ab"), pick(" ", " ", "", "b", "<0x"))
	}
	steps := []object{}
	for range rng.IntN(3) {
		steps = append(steps, step())
	}
	if !one(4) {
		steps = append(steps, object{"type": "ByteFallback"})
	}
	if one(3) {
		steps = append(steps, step())
	}
	if !one(4) {
		steps = append(steps, object{"type": "Fuse"})
		for range rng.IntN(3) {
			steps = append(steps, object{"type": "Strip", "content": pick(" ", "a"), "start": rng.IntN(3), "stop": 0})
		}
	}

	added := []object{}
	next := len(vocab)
	seen := map[string]bool{}
	for range rng.IntN(5) {
		content := pick("<s>", "a", " ", "  ", "\n", "\u212b", "ab", word(2), word(3))
		if seen[content] {
			continue
		}
		seen[content] = true
		id, ok := vocab[content]
		if !ok {
			id, next = next, next+1
		}
		o := addedPart(id, content)
		for _, flag := range []string{"single_word", "lstrip", "rstrip", "normalized", "special"} {
			o[flag] = one(3)
		}
		added = append(added, o)
	}

	c := charCase{File: charFile(map[string]any{
		"model.vocab": vocab, "model.merges": merges, "model.unk_token": unk, "model.fuse_unk": one(2),
		"model.byte_fallback": missing != "all" || one(2), "model.ignore_merges": one(4),
		"normalizer": normalizer, "pre_tokenizer": pre, "added_tokens": added,
		"decoder": object{"type": "Sequence", "decoders": steps},
	})}
	inside := append([]string{" ", " ", "a", "b"}, charAlphabet...)
	for s := range seen {
		inside = append(inside, s, s)
	}
	for range 12 {
		var b strings.Builder
		for range rng.IntN(16) {
			if one(4) && len(words) > odd {
				b.WriteString(words[odd+rng.IntN(len(words)-odd)])
			} else {
				b.WriteString(inside[rng.IntN(len(inside))])
			}
		}
		c.Texts = append(c.Texts, b.String())
		ids := make([]int32, rng.IntN(12))
		for i := range ids {
			ids[i] = int32(rng.IntN(next))
			if one(3) && missing == "none" {
				ids[i] = int32(vocab[pick("<0xC3>", "<0xA9>", "<0x20>", "<0x61>", "<0xE2>", "<0x96>", "<0x81>")])
			}
		}
		c.IDs = append(c.IDs, ids)
	}
	return c
}

// TestPeerChars: random tokenizers of characters give the ids and the texts of the
// reference engine, or are refused.
func TestPeerChars(t *testing.T) {
	python(t)
	t.Parallel()
	const cases = 4000
	rng := rand.New(rand.NewPCG(*seed, 7))
	all := make([]charCase, cases)
	for i := range all {
		all[i] = randomCharCase(rng)
	}
	refused, bad := 0, 0
	for i, want := range ask[charAnswer](t, "cases", nil, all) {
		c := all[i]
		tok, err := bpe.Parse(c.File, bpe.Options{})
		switch {
		case err != nil && want.Error == "" && !errors.Is(err, bpe.ErrUnsupported):
			t.Errorf("case %d: Parse = %v, and the reference engine reads it", i, err)
			bad++
		case err != nil:
			refused++
			continue
		case want.Error != "":
			t.Errorf("case %d: Parse succeeds, the reference engine says %s", i, want.Error)
			bad++
			continue
		}
		if problem := c.compare(t, tok, want); problem != "" {
			t.Errorf("case %d (seed %d): %s\n%s", i, *seed, problem, c.brief())
			bad++
		}
		if bad > 3 {
			t.FailNow()
		}
	}
	t.Logf("%d of %d tokenizers refused", refused, cases)
	if refused > cases/4 {
		t.Errorf("%d of %d tokenizers refused", refused, cases)
	}
}

// compare returns the first difference.
func (c *charCase) compare(t *testing.T, tok *bpe.Tokenizer, want charAnswer) string {
	t.Helper()
	for k, text := range c.Texts {
		for mode, ids := range map[bpe.AddedMode][]int32{bpe.AddedAll: want.IDs[k], bpe.AddedNotSpecial: want.Special[k]} {
			if got := encode(t, tok, text, bpe.EncodeOptions{Added: mode}); ids != nil && fmt.Sprint(got) != fmt.Sprint(ids) {
				return fmt.Sprintf("ids of %q, mode %d = %v, want %v", text, mode, got, ids)
			}
		}
	}
	for k, ids := range c.IDs {
		if want.Texts[k] == nil {
			return fmt.Sprintf("the reference engine panics on ids %v", ids)
		}
		for s, text := range want.Texts[k] {
			opts := bpe.DecodeOptions{SkipSpecial: s == 0}
			if got := decode(t, tok, ids, opts); got != text {
				return fmt.Sprintf("text of %v, skip %v = %q, want %q", ids, s == 0, got, text)
			}
			if got := streamed(t, tok, ids, opts, text); got != text {
				return fmt.Sprintf("stream of %v, skip %v = %q, want %q", ids, s == 0, got, text)
			}
		}
	}
	return ""
}

// streamed decodes ids one by one, and checks that what came is a prefix of text.
func streamed(t *testing.T, tok *bpe.Tokenizer, ids []int32, opts bpe.DecodeOptions, text string) string {
	t.Helper()
	s := tok.NewStream(opts)
	var got []byte
	for round := range 2 { // a stream may be used again
		got = got[:0]
		for _, id := range ids {
			var err error
			if got, err = s.AppendText(got, id); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(text, string(got)) {
				t.Fatalf("round %d: stream of %v has returned %q, not a prefix of %q", round, ids, got, text)
			}
		}
		got = s.AppendRest(got)
	}
	return string(got)
}

// brief is the file without its bytes.
func (c *charCase) brief() string {
	var file map[string]any
	_ = json.Unmarshal(c.File, &file)
	if model, ok := file["model"].(map[string]any); ok {
		if vocab, ok := model["vocab"].(map[string]any); ok {
			for b := range 256 {
				delete(vocab, fmt.Sprintf("<0x%02X>", b))
			}
		}
	}
	out, _ := json.Marshal(file)
	return string(out)
}
