package continuity

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A toolCall is one call in the JSON form that the template renders: an object with the members
// name and arguments, in this order.
type toolCall struct {
	raw       []byte
	name      string
	arguments []byte
}

// readCall parses a call. It rejects a call with other members, because the server would drop these
// members. It also rejects a call whose members are in another order, because the server would
// reorder them.
func readCall(raw []byte) (toolCall, bool) {
	members, ok := readMembers(raw)
	if !ok || len(members) != 2 || members[0].key != "name" || members[1].key != "arguments" {
		return toolCall{}, false
	}
	name, ok := readString(members[0].value)
	arguments := members[1].value
	if !ok || arguments[0] != '{' {
		return toolCall{}, false
	}
	return toolCall{raw, name, arguments}, true
}

// A member is one member of an object. Its value is unparsed JSON.
type member struct {
	key   string
	value []byte
}

func newScanner(raw []byte) *strictjson.Scanner {
	return strictjson.New(string(raw), strictjson.GoOptions())
}

// readMembers returns the members of an object in their order. It rejects JSON that violates RFC
// 8259, even if Python's parser accepts it.
func readMembers(raw []byte) ([]member, bool) {
	var members []member
	ok := true
	s := newScanner(raw)
	for key := range s.Members {
		members = append(members, member{key, []byte(s.Raw())})
		ok = ok && plain(key)
	}
	return members, s.End() == nil && ok
}

func readString(raw []byte) (string, bool) {
	s := newScanner(raw)
	text := s.Text()
	return text, s.End() == nil && plain(text)
}

// plain reports whether a string was decoded without loss. The scanner decodes an unpaired
// surrogate as U+FFFD, but Python keeps the surrogate.
func plain(s string) bool { return !strings.ContainsRune(s, utf8.RuneError) }

// A token is a bracket, a key, or a value that is neither an object nor an array.
type token struct {
	kind byte // the result of strictjson.Scanner.Kind
	text string
}

// sameValue reports whether a and b are the same JSON value. They must have the same members in the
// same order, equal strings, and numbers with the same sign and decimal value.
func sameValue(a, b []byte) bool {
	x, y := newScanner(a), newScanner(b)
	s, t := appendTokens(nil, x), appendTokens(nil, y)
	return x.End() == nil && y.End() == nil && slices.EqualFunc(s, t, sameToken)
}

func appendTokens(dst []token, s *strictjson.Scanner) []token {
	kind := s.Kind()
	switch kind {
	case '{':
		dst = append(dst, token{kind: kind})
		for key := range s.Members {
			dst = appendTokens(append(dst, token{'"', key}), s)
		}
		return append(dst, token{kind: '}'})
	case '[':
		dst = append(dst, token{kind: kind})
		for range s.Elements {
			dst = appendTokens(dst, s)
		}
		return append(dst, token{kind: ']'})
	case '"':
		return append(dst, token{kind, s.Text()})
	}
	return append(dst, token{kind, s.Raw()})
}

func sameToken(a, b token) bool {
	switch {
	case a.kind != b.kind:
		return false
	case a.kind == '"':
		return a.text == b.text && plain(a.text)
	case a.kind == '0':
		return sameNumber(a.text, b.text)
	}
	return a.text == b.text
}

// someMembers reports whether every member of the object part can be the server's print of a member
// of the object whole.
func someMembers(whole, part []byte) bool {
	all, ok := readMembers(whole)
	some, okPart := readMembers(part)
	if !ok || !okPart {
		return true // the members of an object that cannot be parsed are unknown
	}
	for _, p := range some {
		if !slices.ContainsFunc(all, func(m member) bool { return m.key == p.key && mayBe(m.value, p.value) }) {
			return false
		}
	}
	return true
}

// mayBe reports whether the server can print the value a as b. The server rounds numbers and can
// change non-ASCII characters. If a is an array or an object, mayBe accepts any b, because a can
// contain numbers or such characters.
func mayBe(a, b []byte) bool {
	if a[0] == '[' || a[0] == '{' || !ascii(a) || !ascii(b) || bytes.Contains(a, []byte(`\u`)) || bytes.Contains(b, []byte(`\u`)) {
		return true
	}
	x, errX := strconv.ParseFloat(string(a), 64)
	y, errY := strconv.ParseFloat(string(b), 64)
	return errX == nil && errY == nil && x == y || sameValue(a, b)
}

// sameNumber reports whether two JSON numbers have the same sign and decimal value, for example 1e3
// and 1000.0. It compares exact values, so a number that the server rounded is not the same number.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	x, okX := readDecimal(a)
	y, okY := readDecimal(b)
	return okX && okY && x == y
}

// A decimal is the number ± 0.digits × 10^exponent. The digits neither begin nor end with a zero.
// The number zero has no digits and the exponent 0.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

func readDecimal(s string) (decimal, bool) {
	var d decimal
	s, d.negative = strings.CutPrefix(s, "-")
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.ParseInt(s[i+1:], 10, 32) // only 32 bits, so that the sum below cannot overflow
		if err != nil {
			return decimal{}, false
		}
		d.exponent, s = e, s[:i]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	d.exponent += int64(len(digits) - len(fraction))
	d.digits = strings.TrimRight(digits, "0")
	if d.digits == "" {
		d.exponent = 0
	}
	return d, true
}
