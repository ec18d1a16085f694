package chat

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// errHuge is the error of an operation on an int that needs more than 64 bits. Such an int is only
// printed and compared.
func errHuge() error { return unsupportedf("arithmetic with an int of more than 64 bits") }

// truncFloat is Python's int(f) for a finite f.
func truncFloat(f float64) (Value, error) {
	if math.Abs(f) >= 1<<63 {
		return Value{}, errHuge()
	}
	return IntValue(int64(f)), nil
}

// numeral returns the text that int() and float() parse. It refuses digits beyond ASCII and
// underscores between digits, which Python accepts.
func numeral(s string) (string, error) {
	s = strings.TrimFunc(s, isSpace)
	odd := func(c rune) bool { return c == '_' || c > unicode.MaxASCII && unicode.IsDigit(c) }
	other := func(c rune) bool { return !odd(c) && !strings.ContainsRune("0123456789.eE+-", c) }
	if strings.ContainsFunc(s, odd) && !strings.ContainsFunc(s, other) {
		return "", unsupportedf("a number written as '%.40s'", s)
	}
	return s, nil
}

// parseInt is Python's int(s).
func parseInt(s string) (Value, bool, error) {
	s, err := numeral(s)
	if err != nil {
		return Value{}, false, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return Value{}, false, errHuge()
	}
	return IntValue(n), err == nil, nil
}

func (r *run) payNumber(s string) error { return r.pay(len(s)>>3, 2*len(s)) }

// parseFloat is Python's float(s).
func parseFloat(s string) (float64, bool, error) {
	s, err := numeral(s)
	if err != nil {
		return 0, false, err
	}
	switch strings.ToLower(strings.TrimLeft(s, "+-")) {
	case "inf", "infinity", "nan":
	default: // Go also accepts hexadecimal floats, float() does not.
		if strings.Trim(s, "0123456789.eE+-") != "" {
			return 0, false, nil
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0), nil
}
