package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// mapCase applies the full Unicode case mapping, like Python: one character can become several.

func mapCase(s string, table map[rune]string, simple func(rune) rune) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, c := range s {
		appendCase(&b, c, table, simple)
	}
	return b.String()
}

func appendCase(b *strings.Builder, c rune, table map[rune]string, simple func(rune) rune) {
	if c >= utf8.RuneSelf {
		if t, ok := table[c]; ok {
			b.WriteString(t)
			return
		}
	}
	b.WriteRune(simple(c))
}

func toUpper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return mapCase(s, upperTable, unicode.ToUpper)
}

func toLower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	var b strings.Builder
	b.Grow(len(s))
	for i, c := range s {
		appendLower(&b, s, i, c)
	}
	return b.String()
}

func appendLower(b *strings.Builder, s string, i int, c rune) {
	switch {
	case c == 'İ':
		b.WriteString("i̇")
	case c == 'Σ' && finalSigma(s, i):
		b.WriteRune('ς')
	default:
		b.WriteRune(unicode.ToLower(c))
	}
}

// finalSigma reports whether the sigma at byte i ends a word: a cased letter precedes it and none
// follows, ignoring characters that are neutral for case.
func finalSigma(s string, i int) bool {
	before := false
	for j := i; j > 0; {
		c, n := utf8.DecodeLastRuneInString(s[:j])
		j -= n
		if caseIgnorable(c) {
			continue
		}
		before = isCased(c)
		break
	}
	if !before {
		return false
	}
	for _, c := range s[i+len("Σ"):] {
		if !caseIgnorable(c) {
			return !isCased(c)
		}
	}
	return true
}

func isCased(c rune) bool { return isLowerRune(c) || isUpperRune(c) || unicode.IsTitle(c) }

func caseIgnorable(c rune) bool {
	switch c {
	case '\'', '.', ':', '·', '\u0387', '՟', '״', '‘', '’', '․', '‧', '︓', '﹒', '﹕', '＇', '．', '：':
		return true
	}
	return unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}

func capitalize(s string) string {
	if s == "" {
		return s
	}
	c, n := utf8.DecodeRuneInString(s)
	var b strings.Builder
	b.Grow(len(s))
	appendCase(&b, c, titleTable, unicode.ToTitle)
	for i, c := range s[n:] {
		appendLower(&b, s, i+n, c)
	}
	return b.String()
}

func titleCase(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	cased := false
	for i, c := range s {
		if cased {
			appendLower(&b, s, i, c)
		} else {
			appendCase(&b, c, titleTable, unicode.ToTitle)
		}
		cased = isCased(c)
	}
	return b.String()
}

func swapCase(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i, c := range s {
		switch {
		case isUpperRune(c):
			appendLower(&b, s, i, c)
		case isLowerRune(c):
			appendCase(&b, c, upperTable, unicode.ToUpper)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

func caseFold(s string) string { return mapCase(s, foldTable, unicode.ToLower) }

func inRanges(c rune, table [][2]rune) bool {
	for _, r := range table {
		if c >= r[0] && c <= r[1] {
			return true
		}
	}
	return false
}

func isDigitRune(c rune) bool { return unicode.Is(unicode.Nd, c) || inRanges(c, digitTable) }

func isNumericRune(c rune) bool { return unicode.IsNumber(c) || inRanges(c, numeralTable) }

// startsIdentifier is XID_Start plus underscore; continuesIdentifier is what XID_Continue adds.
func startsIdentifier(c rune) bool {
	if c < utf8.RuneSelf {
		return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	return unicode.In(c, unicode.L, unicode.Nl, unicode.Other_ID_Start) && !unicode.Is(unicode.Pattern_Syntax, c) &&
		!changedByNFKC(c) && c != 0x0e33 && c != 0x0eb3 && c != 0xff9e && c != 0xff9f
}

func continuesIdentifier(c rune) bool {
	if c < utf8.RuneSelf {
		return c >= '0' && c <= '9'
	}
	return unicode.In(c, unicode.L, unicode.Nl, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Start, unicode.Other_ID_Continue) &&
		!unicode.Is(unicode.Pattern_Syntax, c) && !changedByNFKC(c)
}

// changedByNFKC reports whether NFKC turns c into something that is not an identifier.
func changedByNFKC(c rune) bool {
	switch {
	case c == 0x037a, c == 0x309b, c == 0x309c, c >= 0xfc5e && c <= 0xfc63, c == 0xfdfa, c == 0xfdfb:
		return true
	}
	return c >= 0xfe70 && c <= 0xfe7e && c%2 == 0
}
