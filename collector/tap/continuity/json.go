package continuity

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A toolCall is the JSON of one call: an object of a name and an object of arguments, in
// this order, as the template prints it.
type toolCall struct {
	raw       []byte
	name      string
	arguments []byte
}

// readCall reads a call. Any other member, or another order, is refused: the server would
// drop the one and change the other.
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

// A member is one of an object: its key, and the text of its value.
type member struct {
	key   string
	value []byte
}

// readMembers reads the members of an object in their order. It refuses texts that
// Python's reader takes and RFC 8259 does not.
func readMembers(raw []byte) ([]member, bool) {
	if len(raw) == 0 || raw[0] != '{' || !json.Valid(raw) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	var members []member
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		var value json.RawMessage
		if err != nil || !ok || !plain(key) || d.Decode(&value) != nil {
			return nil, false
		}
		members = append(members, member{key, value})
	}
	return members, true
}

func readString(raw []byte) (string, bool) {
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil || !plain(s) {
		return "", false
	}
	return s, true
}

// plain reports whether a decoded string is what its text says: encoding/json reads half of
// a surrogate pair as U+FFFD, Python keeps it.
func plain(s string) bool { return !strings.ContainsRune(s, utf8.RuneError) }

// sameValue reports whether two texts are the same JSON value: the same members in the same
// order, strings of the same characters, numbers of the same decimal value and sign.
func sameValue(a, b []byte) bool {
	if !json.Valid(a) || !json.Valid(b) {
		return false
	}
	da, db := json.NewDecoder(bytes.NewReader(a)), json.NewDecoder(bytes.NewReader(b))
	da.UseNumber()
	db.UseNumber()
	depth := 0
	for {
		ta, errA := da.Token()
		tb, errB := db.Token()
		if errA != nil || errB != nil || !sameToken(ta, tb) {
			return false
		}
		switch ta {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return true
		}
	}
}

func sameToken(a, b json.Token) bool {
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return ok && a == b && plain(a)
	case json.Number:
		b, ok := b.(json.Number)
		return ok && sameNumber(string(a), string(b))
	}
	return a == b // a delimiter, a truth value, null
}

// someMembers reports whether every member of part may be one of whole. Both are objects.
func someMembers(whole, part []byte) bool {
	all, ok := readMembers(whole)
	some, okPart := readMembers(part)
	if !ok || !okPart {
		return true // what cannot be read may be anything
	}
	for _, p := range some {
		if !slices.ContainsFunc(all, func(m member) bool { return m.key == p.key && mayBe(m.value, p.value) }) {
			return false
		}
	}
	return true
}

// mayBe reports whether a server that prints the first value may print the second: a number
// is rounded, characters beyond ASCII can change, and lists and objects may have either.
func mayBe(a, b []byte) bool {
	if a[0] == '[' || a[0] == '{' || !ascii(a) || !ascii(b) || bytes.Contains(a, []byte(`\u`)) || bytes.Contains(b, []byte(`\u`)) {
		return true
	}
	x, errX := strconv.ParseFloat(string(a), 64)
	y, errY := strconv.ParseFloat(string(b), 64)
	return errX == nil && errY == nil && x == y || sameValue(a, b)
}

// sameNumber reports whether two JSON numbers have the same sign and decimal value: 1e3 is
// 1000.0. Nothing is rounded, so a number that the server rounded is another one.
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
