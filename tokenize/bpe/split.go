package bpe

// A splitter cuts a text into pre-tokens: it returns the end of the one that
// begins at s[i]. i is a character border of valid UTF-8 and i < len(s); the
// result is greater than i.
//
// Each one is a regular expression written out by hand: the alternatives in
// their order, greedy repetition with the backtracking that matters done by
// remembering the last place where the shorter match would have ended. None
// looks at a byte more than a fixed number of times.
type splitter func(s string, i int) int

// The patterns, as tokenizer.json spells them. A pattern is recognised by its
// exact text or not at all.
const (
	patternCL100K = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternO200K  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternKimi   = `[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	// DeepSeek applies three patterns one after the other, each to the pieces that
	// the one before left.
	patternDeepSeek1 = `\p{N}{1,3}`
	patternDeepSeek2 = "[一-龥\u3040-ゟ゠-ヿ]+"
	patternDeepSeek3 = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// contraction returns the length of (?i:'s|'t|'re|'ve|'m|'ll|'d) at s[i], which
// is an apostrophe, or 0. Case folding makes U+017F an s.
func contraction(s string, i int) int {
	if i+1 >= len(s) {
		return 0
	}
	switch s[i+1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if i+2 < len(s) && s[i+2]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if i+2 < len(s) && s[i+2]|0x20 == 'l' {
			return 3
		}
	}
	if i+2 < len(s) && s[i+1] == 0xC5 && s[i+2] == 0xBF {
		return 3
	}
	return 0
}

// splitSpace is \s*[\r\n]+|\s+(?!\S)|\s+ at s[i], which is white space.
func splitSpace(s string, i int) int {
	newline, last, j := -1, i, i
	for j < len(s) {
		b := s[j]
		if b < 0x80 {
			if asciiClass[b]&space == 0 {
				break
			}
			if b == '\n' || b == '\r' {
				newline = j
			}
			last = j
			j++
			continue
		}
		c, n := classAt(s, j)
		if c&space == 0 {
			break
		}
		last = j
		j += n
	}
	switch {
	case newline >= 0:
		return newline + 1
	case j == len(s) || last == i:
		return j
	}
	return last // all but the last, which goes with what follows
}

func splitCL100K(s string, i int) int { return splitCL(s, i, 1) }
func splitLlama3(s string, i int) int { return splitCL(s, i, 3) }

// splitCL is the pattern of cl100k with at most digits numbers in a pre-token.
func splitCL(s string, i, digits int) int {
	b := s[i]
	c, n := classAt(s, i)
	if c&letter != 0 {
		return spanAny(s, i+n, letter)
	}
	if b == '\'' {
		if k := contraction(s, i); k > 0 {
			return i + k
		}
	}
	if c&number != 0 {
		return spanNumbers(s, i, digits)
	}
	if b != '\r' && b != '\n' && i+n < len(s) {
		c2, n2 := classAt(s, i+n)
		if c2&letter != 0 {
			return spanAny(s, i+n+n2, letter)
		}
		if b == ' ' && c2&(space|number) == 0 {
			return spanNewlines(s, spanNone(s, i+1+n2, space|letter|number))
		}
	}
	if c&space != 0 {
		return splitSpace(s, i)
	}
	return spanNewlines(s, spanNone(s, i+n, space|letter|number))
}

// splitGPT2 is the pattern of ByteLevel itself:
// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func splitGPT2(s string, i int) int {
	b := s[i]
	if b == '\'' && i+1 < len(s) {
		switch s[i+1] {
		case 's', 't', 'm', 'd':
			return i + 2
		case 'r', 'v':
			if i+2 < len(s) && s[i+2] == 'e' {
				return i + 3
			}
		case 'l':
			if i+2 < len(s) && s[i+2] == 'l' {
				return i + 3
			}
		}
	}
	j := i
	if b == ' ' && i+1 < len(s) {
		j++
	}
	c, n := classAt(s, j)
	switch {
	case c&letter != 0:
		return spanAny(s, j+n, letter)
	case c&number != 0:
		return spanAny(s, j+n, number)
	case c&space == 0:
		return spanNone(s, j+n, space|letter|number)
	}
	// White space; \s+(?!\S) keeps newlines among the rest.
	last := i
	for j = i; j < len(s); j += n {
		c, n = classAt(s, j)
		if c&space == 0 {
			break
		}
		last = j
	}
	if j == len(s) || last == i {
		return j
	}
	return last
}
