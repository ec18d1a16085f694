package continuity

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/collector/tap/internal/canon"
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

// sameValue reports whether a and b are the same JSON value. They must have the same members in the
// same order, equal strings, and numbers with the same sign and decimal value.
func sameValue(a, b []byte) bool {
	x, okX := canon.Text(string(a), strictjson.GoOptions(), false)
	y, okY := canon.Text(string(b), strictjson.GoOptions(), false)
	return okX && okY && x == y && plain(x)
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
