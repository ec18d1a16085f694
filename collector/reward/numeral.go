package reward

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of a decimal.
const (
	maxDigits   = 4096 // number of digits
	maxExponent = 4096 // absolute value of the exponent after e or ^
)

// A numeral is one number as it is written in the text. The package comment lists the forms of
// numbers.
type numeral struct {
	neg        bool
	whole      string  // integer part of a mixed number
	num, den   decimal // num is the numerator of a fraction or the number itself; den is zero if there is no fraction
	scale      decimal // a power of ten that multiplies num, or zero
	unreadable bool
}

// A decimal is a decimal number, optionally raised to an integer power.
type decimal struct {
	neg    bool
	digits string // the integer part, with separators
	frac   string // the fractional part, with separators
	exp    string // after e
	pow    string // after ^
	other  bool   // 0x1F, 1.2.3
}

// spell replaces alternative spellings of a sign, so that the scanner needs to handle only one
// spelling.
var spell = strings.NewReplacer(
	"\u2212", "-", "\uFE63", "-", "\uFF0D", "-", "\u2010", "-", "\u2011", "-",
	"\uFF0B", "+", "\uFE62", "+", "\uFF0E", ".", "\uFF0C", ",", "\uFF05", "%", "\uFF0F", "/", "\u2044", "/", "\u2215", "/",
	"\u202F", "\u00A0", "\u2009", "\u00A0", "\u2007", "\u00A0", "\u2008", "\u00A0", "\u200A", "\u00A0",
	"\u200B", "", "\u2060", "", "\uFEFF", "",
	"{,}", ",", `{\,}`, "\u00A0", `\,`, "\u00A0", `\;`, "\u00A0", `\:`, "\u00A0", `\ `, "\u00A0", "~", "\u00A0", `\!`, "",
	`\%`, "%", `\$`, "$", `\dfrac`, `\frac`, `\tfrac`, `\frac`, `\cfrac`, `\frac`, `\times`, "×", `\cdot`, "×",
	"\u00B7", "×", "\u22C5", "×", "\u2019", "'", "\u221A", `\sqrt`,
	"½", `\frac{1}{2}`, "⅓", `\frac{1}{3}`, "⅔", `\frac{2}{3}`, "¼", `\frac{1}{4}`, "¾", `\frac{3}{4}`,
	"⅕", `\frac{1}{5}`, "⅖", `\frac{2}{5}`, "⅗", `\frac{3}{5}`, "⅘", `\frac{4}{5}`, "⅙", `\frac{1}{6}`, "⅚", `\frac{5}{6}`,
	"⅐", `\frac{1}{7}`, "⅛", `\frac{1}{8}`, "⅜", `\frac{3}{8}`, "⅝", `\frac{5}{8}`, "⅞", `\frac{7}{8}`,
	"⅑", `\frac{1}{9}`, "⅒", `\frac{1}{10}`,
)

var (
	superscript = regexp.MustCompile(`(?:⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹])+`)
	lowered     = strings.NewReplacer("⁻", "-", "⁰", "0", "¹", "1", "²", "2", "³", "3", "⁴", "4", "⁵", "5", "⁶", "6", "⁷", "7", "⁸", "8", "⁹", "9")
)

// plainSpelling returns text with one spelling of each sign. For example, full-width and
// mathematical digits become ASCII, and ¹² becomes ^{12}.
func plainSpelling(text string) string {
	if strings.ContainsAny(text, "⁰¹²³⁴⁵⁶⁷⁸⁹") {
		text = superscript.ReplaceAllStringFunc(text, func(power string) string { return "^{" + lowered.Replace(power) + "}" })
	}
	return spell.Replace(strings.Map(func(r rune) rune {
		switch {
		case r >= 0xFF10 && r <= 0xFF19:
			return '0' + r - 0xFF10
		case r >= 0x1D7CE && r <= 0x1D7FF:
			return '0' + (r-0x1D7CE)%10
		}
		return r
	}, text))
}

// lastNumeral finds the last number in a text in plain spelling. The results start and end are the
// bounds of the number, including its sign and currency. The result start is negative if there is
// no number.
func lastNumeral(s string) (n numeral, start, end int) {
	start = -1
	for i := 0; i < len(s); {
		at, to, ok := numeral{}, 0, false
		switch c := s[i]; {
		case c == '\\', decimalAt(s, i):
			at, to, ok = readNumeral(s, i)
		case c == '^':
			_, to, _ = power(s, i) // skips the power of a word: m^2
		}
		if ok {
			n, end = at, to
			start, n.neg = sign(s, i)
			n.unreadable = n.unreadable || s[i] == '0' && digitAt(s, i+1) && i > 1 && s[i-1] == ' ' && isDigit(s[i-2]) || // 8 000
				strings.HasPrefix(s[end:], `\pi`) || strings.HasPrefix(s[end:], "π")
		}
		i = max(i+1, to)
	}
	return n, start, end
}

// sign reads the sign and the currency before a number at i, in any order.
func sign(s string, i int) (start int, neg bool) {
	start = skipCurrency(s, i)
	mark, size := utf8.DecodeLastRuneInString(s[:start])
	if !strings.ContainsRune("-+\u2012\u2013", mark) {
		return start, false
	}
	before, _ := utf8.DecodeLastRuneInString(s[:start-size])
	if mark > 0x80 { // a dash can mark a range, even with spaces around it
		before, _ = utf8.DecodeLastRuneInString(strings.TrimRight(s[:start-size], " \u00A0"))
		if !unicode.IsDigit(before) && before != '%' {
			before, _ = utf8.DecodeLastRuneInString(s[:start-size])
		}
	}
	if before == '_' || before == '%' || unicode.IsDigit(before) || unicode.IsLetter(before) && !unicode.In(before, unspaced...) {
		return start, false // a hyphen
	}
	return skipCurrency(s, start-size), mark != '+'
}

// unspaced contains scripts that put no space between a word and a number.
var unspaced = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai}

func skipCurrency(s string, i int) int {
	for {
		r, n := utf8.DecodeLastRuneInString(s[:i])
		if n == 0 || !unicode.Is(unicode.Sc, r) {
			return i
		}
		i -= n
	}
}

func readNumeral(s string, i int) (n numeral, end int, ok bool) {
	if s[i] == '\\' {
		for _, name := range [...]string{`\sqrt`, `\overline`, `\binom`} {
			if !strings.HasPrefix(s[i:], name) {
				continue
			}
			end = skipArgument(s, skipOption(s, i+len(name)))
			if name == `\binom` {
				end = skipArgument(s, end)
			}
			return numeral{unreadable: true}, end, true
		}
		return readFrac(s, i)
	}
	n.num, end = readDecimal(s, i)
	plain := n.num.plain()
	// Read a mixed number.
	if at := skipSpaces(s, end); plain && at < len(s) && (s[at] == '\\' || at > end && isDigit(s[at])) {
		part, to, fraction := numeral{}, 0, false
		if s[at] == '\\' {
			part, to, fraction = readFrac(s, at)
		} else if at == end+1 || s[end] != ' ' {
			num, after := readDecimal(s, at)
			part, to, fraction = slash(s, num, after)
			fraction = fraction && part.num.plain() && part.den.plain()
		}
		switch {
		case !fraction:
		case part.unreadable || part.whole != "" || !part.proper():
			if s[at] == '\\' {
				return numeral{unreadable: true}, to, true // the text might mean a product
			}
		default:
			part.whole = n.num.digits
			return part, to, true
		}
	}
	if part, to, fraction := slash(s, n.num, end); fraction {
		return part, to, true
	}
	return times(s, n, end)
}

// slash reads the rest of a fraction. The numerator num ends at the offset end.
func slash(s string, num decimal, end int) (n numeral, to int, ok bool) {
	at := skipSpace(s, end)
	if at >= len(s) || s[at] != '/' {
		return n, 0, false
	}
	if at = skipSpace(s, at+1); !decimalAt(s, at) {
		return n, 0, false
	}
	n.num = num
	n.den, to = readDecimal(s, at)
	for next := skipSpace(s, to); next < len(s) && s[next] == '/' && digitAt(s, skipSpace(s, next+1)); next = skipSpace(s, to) {
		n.unreadable = true // 1/2/3 is a date or a chain of divisions
		_, to = readDecimal(s, skipSpace(s, next+1))
	}
	return n, to, true
}

// times reads a power of ten after the number n. The number ends at the offset end.
func times(s string, n numeral, end int) (numeral, int, bool) {
	at := skipSpaces(s, end)
	switch {
	case strings.HasPrefix(s[at:], "×"):
		at += len("×")
	case at < len(s) && (s[at] == '*' || s[at] == 'x'):
		at++
	default:
		return n, end, true
	}
	at = skipSpaces(s, at)
	if !strings.HasPrefix(s[at:], "10") {
		return n, end, true
	}
	ten, to := readDecimal(s, at)
	if ten.digits != "10" || ten.pow == "" || ten.frac != "" || ten.exp != "" {
		return n, end, true
	}
	n.scale = ten
	return n, to, true
}

// readFrac reads \frac{a}{b}, \frac12, \frac{a}2 and \frac1{b}. If an argument is not a decimal,
// the numeral is unreadable.
func readFrac(s string, i int) (n numeral, end int, ok bool) {
	const name = `\frac`
	if !strings.HasPrefix(s[i:], name) {
		return n, 0, false
	}
	var good1, good2 bool
	n.num, end, good1 = argument(s, i+len(name))
	n.den, end, good2 = argument(s, end)
	n.unreadable = !good1 || !good2
	return n, end, true
}

func argument(s string, i int) (d decimal, end int, ok bool) {
	end = skipArgument(s, i)
	at := skipSpaces(s, i)
	if at >= len(s) {
		return d, end, false
	}
	if s[at] != '{' {
		return decimal{digits: s[at : at+1]}, end, isDigit(s[at])
	}
	if s[end-1] != '}' {
		return d, end, false
	}
	inside := strings.Trim(s[at+1:end-1], " \u00A0")
	neg := strings.HasPrefix(inside, "-")
	inside = strings.TrimLeft(strings.TrimLeft(inside, "+-"), " \u00A0$")
	if !decimalAt(inside, 0) {
		return d, end, false
	}
	d, to := readDecimal(inside, 0)
	d.neg = neg
	return d, end, to == len(inside)
}

const maxArgument = 1 << 10

func skipArgument(s string, i int) int {
	at := skipSpaces(s, i)
	if at >= len(s) {
		return i
	}
	if s[at] != '{' {
		return at + 1
	}
	depth, most := 0, min(len(s), at+maxArgument)
	for k := at; k < most; k++ {
		switch s[k] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return k + 1
			}
		}
	}
	return most
}

// skipOption returns the end of the optional argument of a LaTeX command, such as [3].
func skipOption(s string, i int) int {
	if i < len(s) && s[i] == '[' {
		if at := strings.IndexByte(s[i:min(len(s), i+maxArgument)], ']'); at >= 0 {
			return i + at + 1
		}
	}
	return i
}

func readDecimal(s string, i int) (d decimal, end int) {
	end = skipDigits(s, i)
	if s[i] == '0' && end == i+1 && end+1 < len(s) && strings.IndexByte("xX", s[end]) >= 0 && isHex(s[end+1]) {
		for end++; end < len(s) && isHex(s[end]); end++ {
		}
		return decimal{other: true}, end
	}
	if end-i <= 3 && end > i {
		end = skipGroups(s, end)
	}
	d.digits = s[i:end]
	if end < len(s) && s[end] == '.' && digitAt(s, end+1) {
		from := end + 1
		if end = skipDigits(s, from); end-from == 3 {
			if to := skipGroups(s, end); strings.HasPrefix(s[end:], "\u00A0") {
				end = to
			}
		}
		d.frac = s[from:end]
		for end < len(s) && s[end] == '.' && digitAt(s, end+1) {
			d.other = true
			end = skipDigits(s, end+1)
		}
	}
	if end < len(s) && s[end]|0x20 == 'e' {
		at := end + 1
		if at < len(s) && (s[at] == '-' || s[at] == '+') {
			at++
		}
		if to := skipDigits(s, at); to > at {
			d.exp, end = s[end+1:to], to
		}
	}
	if pow, to, ok := power(s, end); ok {
		d.pow, end = pow, to
	}
	return d, end
}

// power reads the power that begins at i, such as ^2, ^{-10} or **3. The result pow is "?" if the
// power is not an integer.
func power(s string, i int) (pow string, end int, ok bool) {
	switch {
	case strings.HasPrefix(s[i:], "^"):
		i++
	case strings.HasPrefix(s[i:], "**") && digitAt(s, i+2):
		i += 2
	default:
		return "", i, false
	}
	if i < len(s) && s[i] == '{' {
		end = skipArgument(s, i)
		if s[end-1] == '}' {
			pow = strings.Trim(s[i+1:end-1], " \u00A0")
		}
	} else {
		at := i
		if at < len(s) && (s[at] == '-' || s[at] == '+') {
			at++
		}
		if end = skipDigits(s, at); end == at {
			return "?", i, true
		}
		pow = s[i:end]
	}
	if strings.Trim(strings.TrimLeft(pow, "+-"), "0123456789") != "" || pow == "" {
		pow = "?"
	}
	return pow, end, true
}

// skipGroups returns the end of the groups of three digits that begin at i.
func skipGroups(s string, i int) int {
	for _, sep := range [...]string{",", "\u00A0", "'", "_"} {
		from := i
		for strings.HasPrefix(s[i:], sep) && skipDigits(s, i+len(sep)) == i+len(sep)+3 {
			i += len(sep) + 3
		}
		if i > from {
			break // all separators of a number are of the same kind
		}
	}
	return i
}

func skipDigits(s string, i int) int {
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return i
}

// skipSpaces skips any number of spaces, and skipSpace skips at most one.
func skipSpaces(s string, i int) int {
	for i < len(s) {
		to := skipSpace(s, i)
		if to == i {
			break
		}
		i = to
	}
	return i
}

func skipSpace(s string, i int) int {
	switch {
	case i < len(s) && s[i] == ' ':
		return i + 1
	case i < len(s) && strings.HasPrefix(s[i:], "\u00A0"):
		return i + len("\u00A0")
	}
	return i
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

func isHex(b byte) bool { return isDigit(b) || b|0x20 >= 'a' && b|0x20 <= 'f' }

func digitAt(s string, i int) bool { return i < len(s) && isDigit(s[i]) }

func decimalAt(s string, i int) bool {
	return digitAt(s, i) || i < len(s) && s[i] == '.' && digitAt(s, i+1)
}

// plain reports whether the decimal consists only of its integer part.
func (d *decimal) plain() bool {
	return d.frac == "" && d.exp == "" && d.pow == "" && !d.neg && !d.other && d.digits != ""
}

// proper reports whether the numerator and the denominator are plain and the fraction is less than
// 1.
func (n *numeral) proper() bool {
	num, ok1 := n.num.value()
	den, ok2 := n.den.value()
	return ok1 && ok2 && n.num.plain() && n.den.plain() && num.Cmp(den) < 0
}

var separators = strings.NewReplacer(",", "", "\u00A0", "", "'", "", "_", "")

// value returns the exact value, or false if there is none.
func (d *decimal) value() (*big.Rat, bool) {
	if d.other || len(d.digits)+len(d.frac) > maxDigits {
		return nil, false
	}
	text := separators.Replace(d.digits)
	if text == "" {
		text = "0"
	}
	if d.frac != "" {
		text += "." + separators.Replace(d.frac)
	}
	if d.exp != "" {
		if _, ok := smallInt(d.exp); !ok {
			return nil, false
		}
		text += "e" + d.exp
	}
	v, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, false
	}
	if d.pow != "" {
		if v, ok = raised(v, d.pow); !ok {
			return nil, false
		}
	}
	if d.neg {
		v.Neg(v)
	}
	return v, true
}

func raised(v *big.Rat, pow string) (*big.Rat, bool) {
	n, ok := smallInt(pow)
	if !ok || (v.Num().BitLen()+v.Denom().BitLen())*max(n, -n) > 4*maxDigits {
		return nil, false
	}
	if n < 0 {
		if v.Sign() == 0 {
			return nil, false
		}
		v, n = new(big.Rat).Inv(v), -n
	}
	e := big.NewInt(int64(n))
	return new(big.Rat).SetFrac(new(big.Int).Exp(v.Num(), e, nil), new(big.Int).Exp(v.Denom(), e, nil)), true
}

func smallInt(text string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(text, "+"))
	return n, len(text) <= 32 && err == nil && -maxExponent <= n && n <= maxExponent
}

func (n *numeral) value() (*big.Rat, bool) {
	if n.unreadable {
		return nil, false
	}
	v, ok := n.num.value()
	if !ok {
		return nil, false
	}
	if n.den != (decimal{}) {
		den, ok := n.den.value()
		if !ok || den.Sign() == 0 {
			return nil, false
		}
		v.Quo(v, den)
	}
	if n.scale.pow != "" {
		scale, ok := n.scale.value()
		if !ok {
			return nil, false
		}
		v.Mul(v, scale)
	}
	if n.whole != "" {
		whole, ok := (&decimal{digits: n.whole}).value()
		if !ok {
			return nil, false
		}
		v.Add(v, whole)
	}
	if n.neg {
		v.Neg(v)
	}
	return v, true
}
