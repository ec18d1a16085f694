package bpe_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A smallCase is a random tokenizer with texts and ids to convert.
type smallCase struct {
	File  []byte    `json:"file"`
	Texts []string  `json:"texts"`
	IDs   [][]int32 `json:"ids"`

	tok *bpe.Tokenizer
	err error
}

// A smallAnswer is the reference engine's result for a smallCase; null means that it panicked.
type smallAnswer struct {
	Error string       `json:"error"`
	IDs   [][]int32    `json:"ids"`
	Back  []*string    `json:"back"`
	Post  [][]int32    `json:"post"`
	None  [][]int32    `json:"none"`
	Texts []*[2]string `json:"texts"`
}

var smallAlphabet = []string{"a", "b", "c", " ", "▁", "é", "e\u0301", "日", "本", "😀", "\n", "\t", "<", ">", "x", "\u212b", "\u00a0", "_", "A", "<0x41>", "\x00", "\u0958", "1", "2"}

// A generator makes random choices.
type generator struct{ *rand.Rand }

func (g generator) pick(list ...string) string { return list[g.IntN(len(list))] }

// one returns true with probability 1/n.
func (g generator) one(n int) bool { return g.IntN(n) == 0 }

// addTokens generates up to most added tokens with random flags, and returns their contents and the
// next unused id. content gets the contents so far.
func (g generator) addTokens(vocab map[string]int, next, most int, content func(made []string) string) (added []object, made []string, after int) {
	added = []object{}
	for range g.IntN(most + 1) {
		text := content(made)
		if text == "" || slices.Contains(made, text) || !utf8.ValidString(text) {
			continue
		}
		made = append(made, text)
		id, ok := vocab[text]
		if !ok {
			id, next = next, next+1
		}
		o := addedPart(id, text)
		for _, flag := range []string{"single_word", "lstrip", "rstrip", "normalized", "special"} {
			o[flag] = g.one(3)
		}
		added = append(added, o)
	}
	return added, made, next
}

// A charGenerator generates small tokenizers of characters that combine all features.
type charGenerator struct{ generator }

func (m charGenerator) word(n int) string {
	var b strings.Builder
	for range 1 + m.IntN(n) {
		b.WriteString(m.pick(smallAlphabet...))
	}
	return b.String()
}

func (m charGenerator) normStep() object {
	switch m.IntN(4) {
	case 0:
		return object{"type": "NFC"}
	case 1:
		return object{"type": "Prepend", "prepend": m.pick("▁", "▁", "a", "xa")}
	case 2:
		return replacePart(" ", "▁")
	}
	return replacePart(m.pick(" ", "a", "ab", "▁", "A", "é", "  "), m.pick("▁", "b", "", "aa", "e\u0301", " "))
}

func (m charGenerator) normalizer() any {
	switch m.IntN(4) {
	case 0:
		return m.normStep()
	case 1:
		return object{"type": "Sequence", "normalizers": []object{m.normStep(), {"type": "Sequence", "normalizers": []object{m.normStep(), m.normStep()}}}}
	case 2:
		return object{"type": "Sequence", "normalizers": []object{{"type": "Prepend", "prepend": "▁"}, replacePart(" ", "▁")}}
	}
	return nil
}

// decoders generates a chain of decoders for a vocabulary of characters.
func (m charGenerator) decoders() object {
	step := func() object {
		switch m.IntN(5) {
		case 0:
			return object{"type": "Strip", "content": m.pick(" ", "a", "▁"), "start": m.IntN(3), "stop": 0}
		case 1:
			return object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": m.pick("always", "first", "never"), "split": true}
		}
		return replacePart(m.pick("▁", "▁", "a", "<", "ab"), m.pick(" ", " ", "", "b", "<0x"))
	}
	steps := []object{}
	for range m.IntN(3) {
		steps = append(steps, step())
	}
	if !m.one(4) {
		steps = append(steps, object{"type": "ByteFallback"})
	}
	if m.one(3) {
		steps = append(steps, step())
	}
	if !m.one(4) {
		steps = append(steps, object{"type": "Fuse"})
		for range m.IntN(3) {
			steps = append(steps, object{"type": "Strip", "content": m.pick(" ", "a"), "start": m.IntN(3), "stop": 0})
		}
	}
	return object{"type": "Sequence", "decoders": steps}
}

// inputs adds texts made of words, and lists of ids. Many ids are from often.
func (m charGenerator) inputs(c *smallCase, words []string, all, often []int) {
	inside := append([]string{" ", " ", "a", "b"}, smallAlphabet...)
	for range 12 {
		var b strings.Builder
		for range m.IntN(16) {
			from := inside
			if m.one(3) && len(words) > 0 {
				from = words
			}
			b.WriteString(m.pick(from...))
		}
		c.Texts = append(c.Texts, b.String())
		ids := make([]int32, m.IntN(12))
		for i := range ids {
			ids[i] = int32(all[m.IntN(len(all))])
			if len(often) > 0 && m.one(3) {
				ids[i] = int32(often[m.IntN(len(often))])
			}
		}
		c.IDs = append(c.IDs, ids)
	}
}

// randomCharCase generates a tokenizer of characters.
func randomCharCase(rng *rand.Rand) smallCase {
	m := charGenerator{generator{rng}}
	vocab := map[string]int{}
	var words []string
	add := func(s string) {
		if _, ok := vocab[s]; !ok {
			vocab[s] = len(vocab)
			words = append(words, s)
		}
	}
	add("<unk>")
	missing := m.pick("none", "none", "some", "all")
	for b := range 256 {
		if missing == "none" || missing == "some" && (b < 0x80 || b == 0xC3 || b == 0xA9) {
			add(fmt.Sprintf("<0x%02X>", b))
		}
	}
	odd := len(words) // byte tokens and the unknown token rarely merge
	for _, c := range smallAlphabet {
		if r := []rune(c); len(r) == 1 && !m.one(4) {
			add(c)
		}
	}
	for range m.IntN(4) {
		add(m.pick(m.word(4), m.word(4), "<0x+A>", "<0xc3>", "<0xC3")) // usually no merges make it
	}
	merges := []any{}
	if odd < len(words) {
		for range m.IntN(40) {
			from := odd
			if m.one(40) {
				from = 0
			}
			a, b := words[from+m.IntN(len(words)-from)], words[odd+m.IntN(len(words)-odd)]
			add(a + b)
			merges = append(merges, []string{a, b})
		}
	}
	if m.one(4) {
		vocab[words[len(words)-1]] += 3 // leaves lower ids unused
	}
	unk := any("<unk>")
	if missing == "none" && m.one(3) {
		unk = nil
	}
	var often []int
	if missing == "none" {
		for _, b := range "\xC3\xA9 a\xE2\x96\x81" {
			often = append(often, 1+int(b&0xFF))
		}
	}
	meta := object{"type": "Metaspace", "replacement": m.pick("▁", "▁", "_"), "prepend_scheme": m.pick("always", "first", "never"), "split": m.one(2)}
	split := object{"type": "Split", "pattern": object{"String": " "}, "behavior": "MergedWithPrevious", "invert": false}
	other := object{"type": "Split", "pattern": object{"String": m.pick("a", "▁", "  ", "▁▁")}, "behavior": m.pick("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"), "invert": m.one(4)}
	digits := object{"type": "Digits", "individual_digits": m.one(2)}
	pre := []any{nil, meta, split, []object{meta, split}, []object{other, digits}, []object{meta, other}}[m.IntN(6)]
	if parts, ok := pre.([]object); ok {
		pre = object{"type": "Sequence", "pretokenizers": parts}
	}
	ids := slices.Sorted(maps.Values(vocab))
	added, contents, next := m.addTokens(vocab, len(vocab), 4, func([]string) string {
		return m.pick("<s>", "a", " ", "  ", "\n", "\u212b", "ab", m.word(2), m.word(3))
	})
	for id := len(vocab); id < next; id++ {
		ids = append(ids, id)
	}
	c := smallCase{File: charFile(map[string]any{
		"model.vocab": vocab, "model.merges": merges, "model.unk_token": unk, "model.fuse_unk": m.one(2),
		"model.byte_fallback": missing != "all" || m.one(2), "model.ignore_merges": m.one(4),
		"normalizer": m.normalizer(), "pre_tokenizer": pre, "added_tokens": added, "decoder": m.decoders(),
	})}
	m.inputs(&c, append(contents, words[odd:]...), ids, often)
	return c
}

// compare returns the first difference, or "".
func (c *smallCase) compare(t *testing.T, want smallAnswer) string {
	t.Helper()
	tok := c.tok
	for k, text := range c.Texts {
		for opts, ids := range map[bpe.EncodeOptions][]int32{
			{}: want.IDs[k], {PostProcess: true}: want.Post[k], {Added: bpe.AddedNone}: want.None[k],
		} {
			if got := encode(t, tok, text, opts); ids != nil && fmt.Sprint(got) != fmt.Sprint(ids) {
				return fmt.Sprintf("ids of %q, %+v = %v, want %v", text, opts, got, ids)
			}
		}
		if back := want.Back[k]; back != nil {
			if got := decode(t, tok, want.IDs[k], bpe.DecodeOptions{}); got != *back {
				return fmt.Sprintf("text of %v = %q, want %q", want.IDs[k], got, *back)
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
		}
	}
	return ""
}

// charVariants returns Llama 2 and Gemma 3 with the pipelines of other models: Mistral 7B v0.3, the
// older Llama 2, and one with added tokens that strip white space, as in Phi-3.
func charVariants(tb testing.TB) map[string][]byte {
	tb.Helper()
	metaspace := func(scheme string, split bool) object {
		return object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
	}
	return map[string][]byte{
		"mistral v0.3":    edit(tb, "llama2", map[string]any{"normalizer": nil, "pre_tokenizer": metaspace("first", false)}),
		"metaspace split": edit(tb, "llama2", map[string]any{"normalizer": nil, "pre_tokenizer": metaspace("always", true), "decoder": metaspace("always", true)}),
		"phi-3": edit(tb, "llama2", map[string]any{"added_tokens": []object{
			addedPart(0, "<unk>", "special"), addedPart(1, "<s>", "special"), addedPart(2, "</s>", "normalized", "rstrip"),
			addedPart(32000, "<r>", "rstrip", "special"), addedPart(32001, "<lr>", "lstrip", "rstrip", "normalized"), addedPart(6272, "cat", "single_word"),
		}}),
		"gemma composed": edit(tb, "gemma3", map[string]any{"normalizer": object{"type": "Sequence", "normalizers": []object{{"type": "NFC"}, replacePart(" ", "▁")}}}),
	}
}

// brief returns the file without its byte tokens.
func (c *smallCase) brief() string {
	var file map[string]any
	_ = json.Unmarshal(c.File, &file)
	if model, ok := file["model"].(map[string]any); ok {
		if vocab, ok := model["vocab"].(map[string]any); ok {
			for b := range 256 {
				delete(vocab, fmt.Sprintf("<0x%02X>", b))
				delete(vocab, spell(byte(b)))
			}
		}
	}
	out, _ := json.Marshal(file)
	return string(out)
}
