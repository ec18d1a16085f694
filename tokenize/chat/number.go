package chat

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// errHuge returns the error for arithmetic with an int of more than 64 bits. Such an int can only
// be printed and compared.
func errHuge() error { return unsupportedf("arithmetic with an int of more than 64 bits") }

// truncFloat is the equivalent of Python's int(f) for a finite f.
func truncFloat(f float64) (Value, error) {
	if math.Abs(f) >= 1<<63 {
		return Value{}, errHuge()
	}
	return IntValue(int64(f)), nil
}

// numeral returns s as Python's int() and float() interpret it: with digits converted to ASCII, and
// without underscores between digits.
func numeral(s string) string {
	s = strings.Map(func(c rune) rune {
		if c <= unicode.MaxASCII || !unicode.IsDigit(c) {
			return c
		}
		zero := c // the zero of the first script, if the digits of several scripts are adjacent
		for unicode.IsDigit(zero - 1) {
			zero--
		}
		return '0' + (c-zero)%10
	}, strings.TrimFunc(s, isSpace))
	if !strings.Contains(s, "_") {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if s[i] != '_' || i == 0 || digits(s[i-1:i]) == 0 || digits(s[i+1:]) == 0 {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// parseInt is the equivalent of Python's int(s).
func parseInt(s string) (Value, bool, error) {
	n, err := strconv.ParseInt(numeral(s), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return Value{}, false, errHuge()
	}
	return IntValue(n), err == nil, nil
}

func (r *run) payNumber(s string) error { return r.pay(len(s)>>3, 2*len(s)) }

// parseFloat is the equivalent of Python's float(s).
func parseFloat(s string) (float64, bool) {
	s = numeral(s)
	switch strings.ToLower(strings.TrimLeft(s, "+-")) {
	case "inf", "infinity", "nan":
	default: // Go also accepts hexadecimal floats, but Python's float() does not.
		if strings.Trim(s, "0123456789.eE+-") != "" {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0)
}
