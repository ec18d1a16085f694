package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

func toUpper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	var b strings.Builder
	b.Grow(len(s))
	for _, c := range s {
		if several, ok := upperTable[c]; ok {
			b.WriteString(several)
		} else {
			b.WriteRune(unicode.ToUpper(c))
		}
	}
	return b.String()
}

// appendTitle appends c in title case. If its upper case is several characters, and it has no title
// case of its own, the characters after the first are lower: a letter, or a mark below a Greek letter.
func appendTitle(b *strings.Builder, c rune) {
	several, ok := upperTable[c]
	if title := unicode.ToTitle(c); !ok || title != c || unicode.IsTitle(c) {
		b.WriteRune(title)
		return
	}
	for i, u := range several {
		switch {
		case i == 0 || c == 'ŉ': // its upper case is its title case
			b.WriteRune(u)
		case u == '\u0399': // iota
			b.WriteRune('\u0345')
		default:
			b.WriteRune(unicode.ToLower(u))
		}
	}
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

func isLowerRune(c rune) bool { return unicode.IsLower(c) || unicode.Is(unicode.Other_Lowercase, c) }

func isUpperRune(c rune) bool { return unicode.IsUpper(c) || unicode.Is(unicode.Other_Uppercase, c) }

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
	appendTitle(&b, c)
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
			appendTitle(&b, c)
		}
		cased = isCased(c)
	}
	return b.String()
}
