package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// several holds the characters whose upper or title case is several characters, besides U+1F80 to
// U+1FAF.
const several = "ßŉǰ\u0390\u03b0և\u1e96\u1e97\u1e98\u1e99\u1e9a\u1f50\u1f52\u1f54\u1f56" +
	"\u1fb2\u1fb3\u1fb4\u1fb6\u1fb7\u1fbc\u1fc2\u1fc3\u1fc4\u1fc6\u1fc7\u1fcc\u1fd2\u1fd3\u1fd6\u1fd7" +
	"\u1fe2\u1fe3\u1fe4\u1fe6\u1fe7\u1ff2\u1ff3\u1ff4\u1ff6\u1ff7\u1ffc\ufb00\ufb01\ufb02\ufb03\ufb04\ufb05\ufb06" +
	"\ufb13\ufb14\ufb15\ufb16\ufb17"

// checkUpper refuses a character without a single upper and title case.
func checkUpper(c rune) error {
	if c > unicode.MaxASCII && (c >= 0x1f80 && c <= 0x1faf || strings.ContainsRune(several, c)) {
		return unsupportedf("the upper case of %q", c)
	}
	return nil
}

func toUpper(s string) (string, error) {
	for _, c := range s {
		if err := checkUpper(c); err != nil {
			return "", err
		}
	}
	return strings.ToUpper(s), nil
}

func toLower(s string) (string, error) {
	if isASCII(s) {
		return strings.ToLower(s), nil
	}
	return mapCase(s, func(rune) bool { return false })
}

func capitalize(s string) (string, error) {
	first := true
	return mapCase(s, func(rune) bool {
		was := first
		first = false
		return was
	})
}

func titleCase(s string) (string, error) {
	cased := false
	return mapCase(s, func(c rune) bool {
		was := cased
		cased = isCased(c)
		return !was
	})
}

// mapCase changes the characters for which title reports true to title case, and the others to lower
// case.
func mapCase(s string, title func(c rune) bool) (string, error) {
	var b strings.Builder
	b.Grow(len(s))
	for i, c := range s {
		switch {
		case title(c):
			if err := checkUpper(c); err != nil {
				return "", err
			}
			b.WriteRune(unicode.ToTitle(c))
		case c == 'İ':
			b.WriteString("i̇")
		case c == 'Σ' && finalSigma(s, i):
			b.WriteRune('ς')
		default:
			b.WriteRune(unicode.ToLower(c))
		}
	}
	return b.String(), nil
}

// finalSigma reports whether the sigma at byte i ends a word: a cased letter precedes it and none
// follows, ignoring characters that are neutral for case.
func finalSigma(s string, i int) bool {
	before, _ := utf8.DecodeLastRuneInString(strings.TrimRightFunc(s[:i], caseIgnorable))
	after, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(s[i+len("Σ"):], caseIgnorable))
	return isCased(before) && !isCased(after)
}

func isCased(c rune) bool {
	return unicode.IsLower(c) || unicode.IsUpper(c) || unicode.IsTitle(c) ||
		unicode.In(c, unicode.Other_Lowercase, unicode.Other_Uppercase)
}

func caseIgnorable(c rune) bool {
	switch c {
	case '\'', '.', ':', '·', '\u0387', '՟', '״', '‘', '’', '․', '‧', '︓', '﹒', '﹕', '＇', '．', '：':
		return true
	}
	return unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}

// titleWords is the filter title: white space, hyphens and opening brackets end words.
func titleWords(s string) (string, error) {
	var b strings.Builder
	for s != "" {
		n := strings.IndexFunc(s, func(c rune) bool { return isSpace(c) || strings.ContainsRune("-({[<", c) })
		if n < 0 {
			n = len(s)
		}
		if n > 0 {
			first := runeLen(s)
			upper, err := toUpper(s[:first])
			if err != nil {
				return "", err
			}
			lower, _ := toLower(s[first:n])
			b.WriteString(upper + lower)
		}
		if s = s[n:]; s != "" {
			n = runeLen(s)
			b.WriteString(s[:n])
			s = s[n:]
		}
	}
	return b.String(), nil
}
