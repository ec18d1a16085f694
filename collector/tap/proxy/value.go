package proxy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// sameValue reports whether two texts are the same JSON value. Objects can have their members in any
// order, strings must have the same characters, and numbers the same sign and decimal value: 1.0
// equals 1, but 0.1 does not equal 0.10000000000000001. A text that is not JSON, or that has a
// duplicate member, is equal only to itself.
func sameValue(a, b string) bool {
	if a == b {
		return true
	}
	x, ok := canonical(a)
	if !ok {
		return false
	}
	y, ok := canonical(b)
	return ok && x == y
}

// canonical returns a text that is equal for equal values.
func canonical(text string) (string, bool) {
	s := strictjson.New(text, strictjson.Options{})
	c := canon{s: s}
	out := c.value(make([]byte, 0, len(text)+len(text)/8))
	return string(out), s.End() == nil && !c.bad
}

type canon struct {
	s   *strictjson.Scanner
	bad bool
}

// value appends the next value. Every string begins with its length, so that different values have
// different texts.
func (c *canon) value(dst []byte) []byte {
	s := c.s
	switch s.Kind() {
	case '{':
		var members []string
		for name := range s.Members {
			members = append(members, string(c.value(appendString(nil, name))))
		}
		slices.Sort(members)
		dst = strconv.AppendInt(append(dst, '{'), int64(len(members)), 10)
		for _, m := range members {
			dst = append(dst, m...)
		}
		return append(dst, '}')
	case '[':
		dst = append(dst, '[')
		for range s.Elements {
			dst = append(c.value(dst), ',')
		}
		return append(dst, ']')
	case '"':
		return appendString(dst, s.Text())
	case '0':
		return c.number(dst, s.Number())
	}
	return append(dst, s.Raw()...)
}

func appendString(dst []byte, text string) []byte {
	dst = append(strconv.AppendInt(append(dst, '"'), int64(len(text)), 10), ':')
	return append(dst, text...)
}

// number appends the number ± 0.digits × 10^exponent. The digits neither begin nor end with a zero.
func (c *canon) number(dst []byte, text string) []byte {
	text, negative := strings.CutPrefix(text, "-")
	exponent := int64(0)
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		e, err := strconv.ParseInt(text[i+1:], 10, 32) // only 32 bits, so that the sum below cannot overflow
		c.bad = c.bad || err != nil
		exponent, text = e, text[:i]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent += int64(len(digits) - len(fraction))
	if digits = strings.TrimRight(digits, "0"); digits == "" {
		exponent = 0
	}
	dst = append(dst, '+')
	if negative {
		dst[len(dst)-1] = '-'
	}
	return strconv.AppendInt(append(append(dst, digits...), 'e'), exponent, 10)
}
