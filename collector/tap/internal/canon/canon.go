// Package canon compares JSON values by what they mean, not by how they are written.
package canon

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// Text returns a text that is the same for two JSON values if and only if they are equal. Strings
// must have the same characters, and numbers the same sign and decimal value: 1.0 equals 1, but 0.1
// does not equal 0.10000000000000001. If anyOrder is true, the members of an object can be in any
// order. Text returns false if the text is not JSON that o allows.
func Text(text string, o strictjson.Options, anyOrder bool) (string, bool) {
	s := strictjson.New(text, o)
	out := value(make([]byte, 0, len(text)+len(text)/8), s, anyOrder)
	return string(out), s.End() == nil
}

// value appends the next value. Every string begins with its length, so that different values have
// different texts.
func value(dst []byte, s *strictjson.Scanner, anyOrder bool) []byte {
	switch s.Kind() {
	case '{':
		dst = append(dst, '{')
		from := len(dst)
		var members []string
		for name := range s.Members {
			at := len(dst)
			dst = value(quoted(dst, name), s, anyOrder)
			if anyOrder {
				members = append(members, string(dst[at:]))
			}
		}
		slices.Sort(members)
		for _, m := range members {
			from += copy(dst[from:], m)
		}
		return append(dst, '}')
	case '[':
		dst = append(dst, '[')
		for range s.Elements {
			dst = append(value(dst, s, anyOrder), ',')
		}
		return append(dst, ']')
	case '"':
		return quoted(dst, s.Text())
	case '0':
		return number(dst, s.Number())
	}
	return append(dst, s.Raw()...)
}

func quoted(dst []byte, text string) []byte {
	dst = append(strconv.AppendInt(append(dst, '"'), int64(len(text)), 10), ':')
	return append(dst, text...)
}

// number appends the number ± 0.digits × 10^exponent. The digits neither begin nor end with a zero. A
// number with a huge exponent equals only a number with the same text.
func number(dst []byte, text string) []byte {
	rest, negative := strings.CutPrefix(text, "-")
	exponent := int64(0)
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		e, err := strconv.ParseInt(rest[i+1:], 10, 32) // only 32 bits, so that the sum below cannot overflow
		if err != nil {
			return append(append(dst, '='), text...)
		}
		exponent, rest = e, rest[:i]
	}
	whole, fraction, _ := strings.Cut(rest, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent += int64(len(digits) - len(fraction))
	if digits = strings.TrimRight(digits, "0"); digits == "" {
		exponent = 0
	}
	sign := byte('+')
	if negative {
		sign = '-'
	}
	return strconv.AppendInt(append(append(append(dst, sign), digits...), 'e'), exponent, 10)
}
