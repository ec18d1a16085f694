package continuity

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A toolCall is the JSON of one call as the template prints it: an object with the members name and
// arguments, in this order.
type toolCall struct {
	raw       []byte
	name      string
	arguments []byte
}

// readCall parses a call. It refuses other members, because the server would drop them, and another
// order, because the server would change it.
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

// A member is one member of an object: its key and the text of its value.
type member struct {
	key   string
	value []byte
}

func newScanner(raw []byte) *strictjson.Scanner {
	return strictjson.New(string(raw), strictjson.GoOptions())
}

// readMembers reads the members of an object in their order. It refuses texts that Python's parser
// accepts and RFC 8259 does not allow.
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

// plain reports whether a string was decoded without loss. Half of a surrogate pair is decoded as
// U+FFFD, but Python keeps it.
func plain(s string) bool { return !strings.ContainsRune(s, utf8.RuneError) }

// A token is a bracket, a name or a value without elements.
type token struct {
	kind byte // as strictjson.Scanner.Kind returns it
	text string
}

// sameValue reports whether two texts are the same JSON value: the same members in the same
// order, strings of the same characters, numbers of the same decimal value and sign.
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

// someMembers reports whether every member of part can be the server's print of a member of whole.
// Both are objects.
func someMembers(whole, part []byte) bool {
	all, ok := readMembers(whole)
	some, okPart := readMembers(part)
	if !ok || !okPart {
		return true // an unreadable object can be anything
	}
	for _, p := range some {
		if !slices.ContainsFunc(all, func(m member) bool { return m.key == p.key && mayBe(m.value, p.value) }) {
			return false
		}
	}
	return true
}

// mayBe reports whether the server can print the value a as b: it rounds numbers, and can change
// non-ASCII characters. A list or an object can contain either, so mayBe accepts any b for it.
func mayBe(a, b []byte) bool {
	if a[0] == '[' || a[0] == '{' || !ascii(a) || !ascii(b) || bytes.Contains(a, []byte(`\u`)) || bytes.Contains(b, []byte(`\u`)) {
		return true
	}
	x, errX := strconv.ParseFloat(string(a), 64)
	y, errY := strconv.ParseFloat(string(b), 64)
	return errX == nil && errY == nil && x == y || sameValue(a, b)
}

// sameNumber reports whether two JSON numbers have the same sign and decimal value: 1e3 is 1000.0.
// It rounds nothing, so a number that the server rounded is a different number.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	x, okX := readDecimal(a)
	y, okY := readDecimal(b)
	return okX && okY && x == y
}

// A decimal is ± 0.digits × 10^exponent, and digits neither begins nor ends with a zero. Zero
// has no digits and the exponent 0.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

func readDecimal(s string) (decimal, bool) {
	var d decimal
	s, d.negative = strings.CutPrefix(s, "-")
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.ParseInt(s[i+1:], 10, 32) // 32 bits, so that sums cannot overflow
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
