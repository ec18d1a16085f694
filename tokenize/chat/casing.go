package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// upperTexts holds the upper case of each character whose upper case has several characters, except
// for U+1F80 to U+1FAF.
var upperTexts = func() map[rune]string {
	texts := map[rune]string{}
	for entry := range strings.FieldsSeq(upperTable) {
		c, n := utf8.DecodeRuneInString(entry)
		texts[c] = entry[n:]
	}
	return texts
}()

// Each word of upperTable is a character followed by its upper case.
const upperTable = "\u00dfSS \u0149\u02bcN \u01f0J\u030c \u0390\u0399\u0308\u0301 \u03b0\u03a5\u0308\u0301 " +
	"\u0587\u0535\u0552 \u1e96H\u0331 \u1e97T\u0308 \u1e98W\u030a \u1e99Y\u030a \u1e9aA\u02be " +
	"\u1f50\u03a5\u0313 \u1f52\u03a5\u0313\u0300 \u1f54\u03a5\u0313\u0301 \u1f56\u03a5\u0313\u0342 " +
	"\u1fb2\u1fba\u0399 \u1fb3\u0391\u0399 \u1fb4\u0386\u0399 \u1fb6\u0391\u0342 " +
	"\u1fb7\u0391\u0342\u0399 \u1fbc\u0391\u0399 \u1fc2\u1fca\u0399 \u1fc3\u0397\u0399 " +
	"\u1fc4\u0389\u0399 \u1fc6\u0397\u0342 \u1fc7\u0397\u0342\u0399 \u1fcc\u0397\u0399 " +
	"\u1fd2\u0399\u0308\u0300 \u1fd3\u0399\u0308\u0301 \u1fd6\u0399\u0342 \u1fd7\u0399\u0308\u0342 " +
	"\u1fe2\u03a5\u0308\u0300 \u1fe3\u03a5\u0308\u0301 \u1fe4\u03a1\u0313 \u1fe6\u03a5\u0342 " +
	"\u1fe7\u03a5\u0308\u0342 \u1ff2\u1ffa\u0399 \u1ff3\u03a9\u0399 \u1ff4\u038f\u0399 " +
	"\u1ff6\u03a9\u0342 \u1ff7\u03a9\u0342\u0399 \u1ffc\u03a9\u0399 \ufb00FF \ufb01FI \ufb02FL \ufb03FFI " +
	"\ufb04FFL \ufb05ST \ufb06ST \ufb13\u0544\u0546 \ufb14\u0544\u0535 \ufb15\u0544\u053b " +
	"\ufb16\u054e\u0546 \ufb17\u0544\u053d"

// upperText returns the upper case of c if the upper case has several characters, otherwise "".
func upperText(c rune) string {
	if c >= 0x1f80 && c <= 0x1faf {
		return string([...]rune{0x1f08, 0x1f28, 0x1f68}[c>>4-0x1f8]+c&7) + "\u0399"
	}
	return upperTexts[c]
}

func toUpper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	var b strings.Builder
	b.Grow(len(s))
	for _, c := range s {
		if several := upperText(c); several != "" {
			b.WriteString(several)
		} else {
			b.WriteRune(unicode.ToUpper(c))
		}
	}
	return b.String()
}

func toLower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return mapCase(s, func(rune) bool { return false })
}

func capitalize(s string) string {
	first := true
	return mapCase(s, func(rune) bool {
		was := first
		first = false
		return was
	})
}

func titleCase(s string) string {
	cased := false
	return mapCase(s, func(c rune) bool {
		was := cased
		cased = isCased(c)
		return !was
	})
}

// mapCase converts s to lower case, except that characters for which the function title returns
// true are converted to title case.
func mapCase(s string, title func(c rune) bool) string {
	var b strings.Builder
	b.Grow(len(s))
	for i, c := range s {
		switch {
		case title(c):
			b.WriteString(titleText(c))
		case c == 'İ':
			b.WriteString("i̇")
		case c == 'Σ' && finalSigma(s, i):
			b.WriteRune('ς')
		default:
			b.WriteRune(unicode.ToLower(c))
		}
	}
	return b.String()
}

// titleText returns the title case of a character. Some characters have no title case of their own,
// and their upper case has several characters. The title case of such a character is its upper case
// with all characters after the first in lower case. In the lower-case part, a Greek iota becomes
// the mark U+0345. The exception is ŉ: its title case is its whole upper case.
func titleText(c rune) string {
	several := upperText(c)
	if title := unicode.ToTitle(c); several == "" || title != c || unicode.IsTitle(c) {
		return string(title)
	}
	n := runeLen(several)
	if c == 'ŉ' {
		n = len(several)
	}
	return several[:n] + strings.ReplaceAll(strings.ToLower(several[n:]), "ι", "\u0345")
}

// finalSigma reports whether the sigma at byte i ends a word. That is the case if a cased letter
// precedes the sigma and no cased letter follows it. Case-ignorable characters are skipped in both
// directions.
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

// titleWords implements the filter title. White space, hyphens and opening brackets end words.
func titleWords(s string) string {
	var b strings.Builder
	for s != "" {
		n := strings.IndexFunc(s, func(c rune) bool { return isSpace(c) || strings.ContainsRune("-({[<", c) })
		if n < 0 {
			n = len(s)
		}
		if n > 0 {
			first := runeLen(s)
			b.WriteString(toUpper(s[:first]) + toLower(s[first:n]))
		}
		if s = s[n:]; s != "" {
			n = runeLen(s)
			b.WriteString(s[:n])
			s = s[n:]
		}
	}
	return b.String()
}
