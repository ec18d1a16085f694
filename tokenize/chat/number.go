package chat

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// truncFloat is Python's int(f) for a finite f.
func truncFloat(f float64) Value {
	f = math.Trunc(f)
	if math.Abs(f) < 1<<62 {
		return IntValue(int64(f))
	}
	n, _ := big.NewFloat(f).Int(nil)
	return BigValue(n)
}

// plainDigits converts decimal digits of all scripts to ASCII, as int() and float() do.
func plainDigits(s string) string {
	if isASCII(s) {
		return s
	}
	return strings.Map(func(c rune) rune {
		if c < 0x80 || !unicode.Is(unicode.Nd, c) {
			return c
		}
		zero := c // the zero of the first of several adjacent scripts
		for unicode.Is(unicode.Nd, zero-1) {
			zero--
		}
		return '0' + (c-zero)%10
	}, s)
}

// withoutUnderscores removes underscores between digits. It reports false for any other underscore.
func withoutUnderscores(s string) (string, bool) {
	if strings.IndexByte(s, '_') < 0 {
		return s, true
	}
	alnum := func(c byte) bool { return isHex(c) || c >= 'g' && c <= 'z' || c >= 'G' && c <= 'Z' }
	for i := range len(s) {
		if s[i] == '_' && (i == 0 || i+1 == len(s) || !alnum(s[i-1]) || !alnum(s[i+1])) {
			return "", false
		}
	}
	return strings.ReplaceAll(s, "_", ""), true
}

// parseInt is Python's int(s, base) for text.
func parseInt(s string, base int) (Value, bool) {
	if base != 0 && (base < 2 || base > 36) {
		return Value{}, false
	}
	s = strings.TrimFunc(plainDigits(s), isSpace)
	neg := false
	if s != "" && (s[0] == '+' || s[0] == '-') {
		neg = s[0] == '-'
		s = s[1:]
	}
	prefixed := 0
	if len(s) > 2 && s[0] == '0' {
		switch s[1] | 0x20 {
		case 'x':
			prefixed = 16
		case 'o':
			prefixed = 8
		case 'b':
			prefixed = 2
		}
	}
	zero := base == 0
	switch {
	case prefixed != 0 && (base == 0 || base == prefixed):
		base = prefixed
		s = s[2:]
		s = strings.TrimPrefix(s, "_")
		zero = false
	case base == 0:
		base = 10
	}
	s, ok := withoutUnderscores(s)
	if !ok || s == "" || s[0] == '+' || s[0] == '-' {
		return Value{}, false
	}
	if zero && len(s) > 1 && s[0] == '0' && strings.Trim(s, "0") != "" {
		return Value{}, false
	}
	if base&(base-1) != 0 && len(s) > maxIntDigits {
		return Value{}, false
	}
	n, ok := new(big.Int).SetString(s, base)
	if !ok {
		return Value{}, false
	}
	if neg {
		n.Neg(n)
	}
	return BigValue(n), true
}

func (r *run) payNumber(s string) error { return r.pay(len(s)>>3, 2*len(s)) }

// parseFloat is Python's float(s) for text.
func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(plainDigits(s), isSpace)
	s, ok := withoutUnderscores(s)
	if !ok || s == "" {
		return 0, false
	}
	body := strings.TrimLeft(s, "+-")
	if len(s)-len(body) > 1 {
		return 0, false
	}
	switch strings.ToLower(body) {
	case "inf", "infinity", "nan":
	default:
		// Go also accepts hexadecimal floats, float() does not.
		if strings.Trim(body, "0123456789.eE+-") != "" || strings.ContainsAny(body, "xXpPiInN") {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}
