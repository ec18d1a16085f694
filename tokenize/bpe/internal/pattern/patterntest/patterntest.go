// Package patterntest generates split patterns and text for tests.
package patterntest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// ModelPatterns contains the split patterns of real models.
var ModelPatterns = map[string]string{
	"cl100k":    `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"openai":    `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`,
	"qwen3.5":   `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"o200k":     `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"kimi":      `[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"deepseek1": `\p{N}{1,3}`,
	"deepseek2": "[一-龥\u3040-ゟ゠-ヿ]+",
	"deepseek3": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
	"gpt2":      `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
}

// Pattern returns a random pattern in the syntax of Compile.
func Pattern(rng *rand.Rand) string {
	var b strings.Builder
	for i := range 1 + rng.IntN(4) {
		if i > 0 {
			b.WriteByte('|')
		}
		randomSequence(rng, &b, 2)
	}
	return b.String()
}

func randomSequence(rng *rand.Rand, b *strings.Builder, deep int) {
	for range 1 + rng.IntN(3) {
		switch p := rng.IntN(100); {
		case p < 8:
			fmt.Fprintf(b, "(?%c%s)", "=!"[rng.IntN(2)], randomSet(rng, 1))
			continue
		case p < 10:
			b.WriteString(pick(rng, "$", `\z`))
			continue
		case p < 22 && deep > 0:
			b.WriteString(pick(rng, "(", "(?:"))
			randomSequence(rng, b, deep-1)
			if rng.IntN(2) == 0 {
				b.WriteByte('|')
				randomSequence(rng, b, deep-1)
			}
			b.WriteByte(')')
		case p < 30:
			b.WriteString(pick(rng, "(?i:'s)", "(?i:k|a)", "(?i:t)(?i:s)", "(?i:i)(?i:f)", "(?i:(?:l|k)(?:s|t|f|i))", "(?i:['’]t)", "(?i:[sdk]|Ab)"))
		default:
			b.WriteString(randomSet(rng, 2))
			b.WriteString(pick(rng, "", "", "", "", "", "", "", "?+", "*+", "++"))
		}
		if s := b.String(); s[len(s)-1] != '+' {
			b.WriteString(pick(rng, "", "", "", "", "?", "*", "+", "+", "{2}", "{1,3}", "{2,}", "{1,2}+"))
		}
	}
}

func randomSet(rng *rand.Rand, deep int) string {
	if deep == 0 || rng.IntN(3) > 0 {
		return pick(rng, "a", "b", "s", "K", "ſ", "中", "'", " ", ".", "\\.", `\s`, `\S`, `\d`, `\p{L}`, `\p{Lu}`, `\p{Ll}`, `\p{N}`, `\P{L}`, `\p{M}`, `\p{^N}`, `\p{Han}`, `\p{P}`, `\p{S}`, `\r`, `\n`, `\x41`, `\u00e9`, `\x{1F600}`)
	}
	var b strings.Builder
	b.WriteString(pick(rng, "[", "[", "[^"))
	for i := range 1 + rng.IntN(3) {
		if i > 0 && rng.IntN(6) == 0 {
			b.WriteString("&&")
		}
		switch rng.IntN(6) {
		case 0:
			b.WriteString(pick(rng, "a-c", "A-Z", "0-9", "一-龥", "!-/", `\x{80}-\u00ff`))
		case 1:
			b.WriteString(randomSet(rng, 0))
		case 2:
			if s := randomSet(rng, deep-1); s[0] == '[' || s[0] == '\\' {
				b.WriteString(s)
				break
			}
			fallthrough
		default:
			b.WriteString(pick(rng, "a", "b", "\\s", "\\r\\n", "\\p{L}", "\\p{N}", "\\p{M}", "\\S", "\\P{Ll}", "'", "\\-", "é", "\\p{Han}"))
		}
	}
	b.WriteByte(']')
	return b.String()
}

var pieces = []string{
	"a", "b", "s", "S", "k", "t", "f", "i", "ß", "é", "中", "’", "'", "-", "-", "&", "&&", "^", "[", "[", "[^", "]", "]", "(", "(?:", "(?i:", "(?=", "(?!", ")", ")", "|",
	"?", "*", "+", "++", "?+", "{2}", "{1,2}", "{,2}", "{2,}", "{", "}", ",", "1", "$", ".", " ", "!", "#", "~", "\\", "\\s", "\\S", "\\d", "\\p{L}", "\\p{^L}", "\\P{Lu}", "\\P{^N}",
	"\\p{Han}", "\\p{", "\\n", "\\t", "\\v", "\\f", "\\-", "\\]", "\\[", "\\&", "\\ ", "\\/", "\\x41", "\\x{e9}", "\\u0041", "\\z", "\\'", "\\$", "\n", "\t", "[:", ":]", "a-c", "0-9", "!-/",
}

// RandomSyntax joins random pieces of pattern syntax. Most results are not valid patterns. The
// valid patterns combine constructs in unusual ways.
func RandomSyntax(rng *rand.Rand) string {
	var b strings.Builder
	for range 1 + rng.IntN(9) {
		b.WriteString(pick(rng, pieces...))
	}
	return b.String()
}

func pick(rng *rand.Rand, list ...string) string { return list[rng.IntN(len(list))] }

var letters = []string{
	"a", "a", "b", "c", "s", "t", "A", "B", "S", "K", "k", "ſ", "\u212a", "é", "É", "ß", "ẞ", "ﬁ", "ﬆ", "ﬀ", "中", "文", "龥", "あ", "\u0301", "ा", "1", "2", "٣", "²", "Ⅷ", " ", " ", "\n", "\r", "\t",
	"\u00a0", "\u0085", "\u2028", "\u3000", "'", "’", ".", "!", "-", "/", "$", "+", "€", "😀", "\x00", "\u200b", "\U000e0001", "ǅ", "ʰ", "𝟘", "𐐀",
}

// Text returns random text with few distinct characters. The parameter most is the maximum number
// of characters.
func Text(rng *rand.Rand, most int) string {
	some := make([]string, 1+rng.IntN(6))
	for i := range some {
		some[i] = letters[rng.IntN(len(letters))]
	}
	var b strings.Builder
	for range 1 + rng.IntN(most) {
		b.WriteString(pick(rng, some...))
	}
	return b.String()
}
