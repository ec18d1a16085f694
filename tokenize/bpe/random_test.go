package bpe_test

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A byteGenerator generates small byte-level tokenizers that combine all features.
type byteGenerator struct {
	generator
	vocab    map[string]int
	letters  []string
	words    []string // texts of the vocabulary, without the single bytes
	merges   [][2]string
	added    []object
	next     int  // the first unused id
	few      bool // letters from a small alphabet, so that more merges apply to a text
	allBytes bool
}

func newByteGenerator(rng *rand.Rand) *byteGenerator {
	return &byteGenerator{generator: generator{rng}, vocab: map[string]int{}, few: rng.IntN(2) == 0}
}

// randomAlphabet has letters of every class that a pattern, normalizer or flag distinguishes.
var randomAlphabet = []string{
	"a", "b", "s", "T", "'", "l", "e", "\u0301", "é", "Å", "\u212b", "ſ", "ǅ", "1", "2", "²", "٣", "中", "文", "あ", "ー", "😀", " ", " ", "  ", "\n", "\r\n", "\t",
	"\u00a0", "\u2003", "\u3000", "\u200b", ".", "!", "/", "_", "-", "<", "|", ">", "\x00", "\x1c", "\x7f", "\u1100\u1161", "각", "\u11a8", "\u0302\u0323", "ा", "\ufffd", "\U0001d15e", "▁",
}

func (d *byteGenerator) text(n int, from []string) string {
	var b strings.Builder
	for range d.IntN(n + 1) {
		b.WriteString(from[d.IntN(len(from))])
	}
	return b.String()
}

func (d *byteGenerator) add(piece string) {
	if _, ok := d.vocab[piece]; !ok {
		d.vocab[piece] = d.next
		d.next++
	}
}

// spelled spells the bytes of a text in the byte-level alphabet.
func spelled(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		b.WriteString(spell(c))
	}
	return b.String()
}

// byteModel generates a byte-level vocabulary that no training produces: with tokens that no merge
// makes and merges of them, several merges to one token, duplicate merges, and an order of merges and
// ids unrelated to the sizes of the tokens.
func (d *byteGenerator) byteModel() object {
	order := d.Perm(256)
	if d.one(2) {
		for b := range order {
			order[b] = b
		}
	}
	for i, b := range order {
		if i != 255 || d.allBytes || !d.one(30) { // rarely, one byte is missing
			d.add(spell(byte(b)))
		}
	}
	d.letters = [][]string{{"a", "b"}, {"a", "b", "c"}, {"a"}, {"a", "é", "中", "丰"}}[d.IntN(4)]
	if !d.few {
		d.letters = nil
		for range 2 + d.IntN(8) {
			d.letters = append(d.letters, d.pick(randomAlphabet...))
		}
	}
	var pieces []string
	for _, l := range d.letters {
		for _, c := range []byte(l) {
			pieces = append(pieces, spell(c))
		}
	}
	for range d.IntN(50) {
		a, b := pieces[d.IntN(len(pieces))], pieces[d.IntN(len(pieces))]
		if len(a)+len(b) > 60 {
			continue
		}
		d.add(a + b)
		d.merges = append(d.merges, [2]string{a, b})
		pieces = append(pieces, a+b)
	}
	for range d.IntN(4) { // no merge makes these, except by chance
		if w := d.text(4, d.letters); w != "" {
			d.add(spelled(w))
		}
	}
	if d.one(2) {
		d.moreMerges(pieces)
	}
	if d.one(3) {
		d.Shuffle(len(d.merges), func(i, j int) { d.merges[i], d.merges[j] = d.merges[j], d.merges[i] })
	}
	if d.one(3) {
		ids := d.Perm(d.next)
		for piece, id := range d.vocab {
			d.vocab[piece] = ids[id]
		}
	}
	d.words = append(d.words, d.letters...)
	for _, p := range pieces {
		d.words = append(d.words, unspelled(p))
	}
	model := object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil, "vocab": d.vocab, "merges": d.mergeList()}
	for _, flag := range []string{"fuse_unk", "byte_fallback"} {
		if d.one(2) {
			model[flag] = d.one(12)
		}
	}
	if !d.one(3) {
		model["ignore_merges"] = d.one(2)
	}
	if d.one(8) {
		model["continuing_subword_prefix"], model["end_of_word_suffix"] = "", ""
	}
	if d.one(20) {
		model["unk_token"] = d.pick("a", "<unk>")
	}
	return model
}

// moreMerges adds all other ways to split some of the pieces, and a merge twice.
func (d *byteGenerator) moreMerges(pieces []string) {
	for range d.IntN(20) {
		p := []rune(d.pick(pieces...))
		for cut := 1; cut < len(p); cut++ {
			a, b := string(p[:cut]), string(p[cut:])
			if _, ok := d.vocab[a]; !ok {
				continue
			}
			if _, ok := d.vocab[b]; ok {
				d.merges = append(d.merges, [2]string{a, b})
			}
		}
	}
	if len(d.merges) > 0 && d.one(2) {
		d.merges = append(d.merges, d.merges[d.IntN(len(d.merges))])
	}
}

func (d *byteGenerator) mergeList() []any {
	pairs := d.one(2)
	out := make([]any, len(d.merges))
	for i, m := range d.merges {
		if out[i] = m[0] + " " + m[1]; pairs {
			out[i] = m
		}
	}
	return out
}

var unspelling = func() map[rune]byte {
	out := map[rune]byte{}
	for b := range 256 {
		out[[]rune(spellings[b])[0]] = byte(b)
	}
	return out
}()

func unspelled(piece string) string {
	var b []byte
	for _, r := range piece {
		b = append(b, unspelling[r])
	}
	return string(b)
}

// addTokens generates added tokens: pieces of the vocabulary, prefixes of one another, white space,
// and text that a normalizer changes.
func (d *byteGenerator) addTokens() {
	var contents []string
	d.added, contents, d.next = d.generator.addTokens(d.vocab, d.next, 6, func(made []string) string {
		content := d.pick("<s>", "<s>a", "<", " ", "  ", "    ", "\n", "\u212b", "Å", "e\u0301", "é", "a b", " x", "ab", "s", "中文", "<|im|>", d.text(3, randomAlphabet), d.text(2, d.words))
		if len(made) > 0 && d.one(4) {
			content = made[d.IntN(len(made))] + d.pick(" ", "a", "\u0301", "\n", "<s>")
		}
		return content
	})
	d.words = slices.Concat(d.words, contents, contents)
}

func (d *byteGenerator) normalizer(depth int) any {
	switch n := d.IntN(24); {
	case n < 8:
		return nil
	case n < 14:
		return object{"type": "NFC"}
	case n < 18 && depth < 3:
		parts := []any{}
		for range d.IntN(4) {
			if p := d.normalizer(depth + 1); p != nil {
				parts = append(parts, p)
			}
		}
		return object{"type": "Sequence", "normalizers": parts}
	case n < 21:
		return replacePart(d.pick(" ", "a", "ab", "▁", "é", "  ", "\u0301"), d.pick("▁", "b", "", "aa", "e\u0301", " ", "<s>"))
	case n < 23:
		return object{"type": "Prepend", "prepend": d.pick("▁", " ", "a", "\u0301", "<s>")}
	}
	return object{"type": d.pick("NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")}
}

const patternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// randomPatterns are patterns of real models, most often used alone, and others.
var randomPatterns = []string{
	bpe.PatternCL100K, bpe.PatternLlama3, bpe.PatternO200K, bpe.PatternTekken, patternQwen35, bpe.PatternKimi,
	`\p{L}+|\p{N}{1,3}|[^\p{L}\p{N}]`, `\s+`, `\d{1,3}`, `[\r\n]`, `\s?\p{L}+`, `[一-龥]+`, ` ?[^\s]+|\s+(?!\S)|\s+`, `(?i:'s|'t)|[a-z]+`, `a+?b|.`,
}

func (d *byteGenerator) split(pattern string) object {
	behavior, invert := "Isolated", false
	switch d.IntN(8) {
	case 0:
		behavior, invert = "Removed", true
	case 1:
		behavior, invert = d.pick("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"), d.one(2)
	}
	return object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": behavior, "invert": invert}
}

func (d *byteGenerator) preTokenizer() any {
	level := func(regex bool) object {
		return object{"type": "ByteLevel", "add_prefix_space": d.one(12), "trim_offsets": d.one(2), "use_regex": regex}
	}
	sequence := func(parts ...object) object { return object{"type": "Sequence", "pretokenizers": parts} }
	digits := object{"type": "Digits", "individual_digits": d.one(2)}
	switch n := d.IntN(20); {
	case n < 9:
		return sequence(d.split(randomPatterns[d.IntN(6)]), level(false))
	case n < 11:
		return level(true)
	case n < 13:
		return sequence(digits, level(d.one(2)))
	case n < 15:
		var deepseek []object
		for _, p := range []string{bpe.PatternDeepSeek1, bpe.PatternDeepSeek2, bpe.PatternDeepSeek3} {
			deepseek = append(deepseek, object{"type": "Split", "pattern": object{"Regex": p}, "behavior": "Isolated", "invert": false})
		}
		return sequence(append(deepseek, level(false))...)
	case n < 16:
		return level(false)
	case n < 19:
		var parts []object
		for range 1 + d.IntN(3) {
			parts = append(parts, d.split(randomPatterns[d.IntN(len(randomPatterns))]))
			if d.one(4) {
				parts = append(parts, digits)
			}
		}
		return sequence(append(parts, level(d.one(6)))...)
	}
	return []any{nil, sequence(), object{"type": "Whitespace"}, object{"type": "WhitespaceSplit"}, sequence(object{"type": "Punctuation", "behavior": "Isolated"}, level(false)), digits}[d.IntN(6)]
}

// postProcessor generates a post-processor with existing tokens.
func (d *byteGenerator) postProcessor() any {
	level := object{"type": "ByteLevel", "add_prefix_space": d.one(2), "trim_offsets": d.one(2), "use_regex": d.one(2)}
	around := template("x", "y", d.IntN(d.next), d.IntN(d.next), d.IntN(d.next))
	switch d.IntN(6) {
	case 0:
		return level
	case 1:
		return around
	case 2:
		return object{"type": "Sequence", "processors": []object{level, around}}
	case 3:
		if d.one(5) {
			return object{"type": "RobertaProcessing", "sep": []any{"a", 0}, "cls": []any{"b", 1}, "trim_offsets": true, "add_prefix_space": false}
		}
	}
	return nil
}

// randomCase generates a tokenizer, sometimes with a part that fits only the other kind.
func randomCase(rng *rand.Rand) smallCase {
	d := newByteGenerator(rng)
	if d.one(3) {
		c := randomCharCase(rng)
		if !d.one(4) {
			return c
		}
		part := d.pick("normalizer", "pre_tokenizer", "decoder")
		c.File = replaced(c.File, part, map[string]func() any{
			"normalizer": func() any { return d.normalizer(0) }, "pre_tokenizer": d.preTokenizer, "decoder": d.decoder,
		}[part]())
		return c
	}
	model := d.byteModel()
	d.addTokens()
	file := object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": d.added, "normalizer": d.normalizer(0),
		"pre_tokenizer": d.preTokenizer(), "post_processor": d.postProcessor(), "decoder": object{"type": "ByteLevel", "add_prefix_space": d.one(2), "trim_offsets": true, "use_regex": true},
		"model": model,
	}
	if d.one(25) {
		file["decoder"] = d.decoder()
	}
	c := smallCase{File: marshal(file)}
	inside := append([]string{" ", "a", "1"}, d.words...)
	for i := range 14 {
		text := d.text(14, inside)
		if i >= 10 {
			text = d.word()
		}
		if d.one(3) {
			text = d.text(10, randomAlphabet) + text + d.text(10, inside)
		}
		if d.one(8) {
			text += string(rune(d.IntN(0x110000)))
		}
		c.Texts = append(c.Texts, strings.ToValidUTF8(text, ""))
	}
	for range 6 {
		ids := make([]int32, d.IntN(14))
		for i := range ids {
			ids[i] = int32(d.IntN(d.next))
			if len(d.added) > 0 && d.one(3) {
				ids[i] = int32(d.added[d.IntN(len(d.added))]["id"].(int))
			}
		}
		c.IDs = append(c.IDs, ids)
	}
	return c
}

// decoder generates a decoder that is rare for a vocabulary of bytes.
func (d *byteGenerator) decoder() any {
	fallback := object{"type": "Sequence", "decoders": []object{replacePart("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}}}
	return []any{nil, fallback, object{"type": "ByteLevel"}, object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}, object{"type": "BPEDecoder", "suffix": "</w>"}, object{"type": "Fuse"}, object{"type": "Sequence", "decoders": []object{{"type": "ByteLevel"}}}}[d.IntN(7)]
}
