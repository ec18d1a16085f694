package letta

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A scanner reads one JSON text from a server.
//
// Its outcome equals the outcome of encoding/json, except that an unused member can have any type
// (scan_value.go): the same texts are refused, the last of several members with one name wins, null
// leaves a value unchanged, bytes that are not UTF-8 become U+FFFD, and arrays and objects nest up to
// 10,000 levels. Names of members match without regard to case.
type scanner struct {
	strictjson.Scanner

	// exact means that the name of the last member was written as members yields it.
	exact bool
}

// newScanner returns a scanner of text. A caller that does not use it any more can recycle it.
func newScanner(text string) *scanner { return newValidScanner(validText(text)) }

// newValidScanner is newScanner for a text that is known to be UTF-8.
func newValidScanner(text string) *scanner {
	s, _ := scanners.Get().(*scanner)
	if s == nil {
		s = new(scanner)
	}
	o := strictjson.GoOptions()
	o.CheckedUTF8 = true
	s.Reset(text, o)
	return s
}

// scanners keep their scratch.
var scanners sync.Pool

func (s *scanner) recycle() {
	s.Reset("", strictjson.Options{})
	scanners.Put(s)
}

// validText replaces each byte that is not UTF-8 by U+FFFD.
func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		b.WriteRune(r)
	}
	return b.String()
}

// members reads an object and calls yield with the name of each member in lower case, because
// encoding/json ignores case and all names of the API are in lower case. yield reads the value; a
// value that it does not read is skipped. null has no members.
func (s *scanner) members(yield func(name string) bool) {
	if s.Null() {
		return
	}
	for name := range s.Members {
		if !yield(s.lower(name)) {
			return
		}
	}
}

// orMembers is like members, but treats a value that is not an object as an empty object.
func (s *scanner) orMembers(yield func(name string) bool) {
	if s.is('{') {
		s.members(yield)
	}
}

// elements reads an array and calls yield with the index of each element. yield reads the element; an
// element that it does not read is skipped. null has no elements.
func (s *scanner) elements(yield func(i int) bool) {
	if !s.Null() {
		s.Elements(yield)
	}
}

// lower returns the name of a member in lower case.
func (s *scanner) lower(name string) string {
	s.exact = true
	for i := range len(name) {
		if c := name[i]; c-'A' < 26 || c >= utf8.RuneSelf {
			s.exact = false
			return strings.Map(foldRune, name)
		}
	}
	return name
}

// foldRune returns the lower-case ASCII letter that equals a rune without regard to case.
func foldRune(r rune) rune {
	switch {
	case r >= 'A' && r <= 'Z':
		return r + 'a' - 'A'
	case r == '\u017f': // long s
		return 's'
	case r == '\u212a': // Kelvin sign
		return 'k'
	}
	return r
}

// raw reads a value of any type and returns its text.
func (s *scanner) raw() RawJSON { return RawJSON(s.Raw()) }

// start moves to the beginning of a value and returns its offset, for since.
func (s *scanner) start() int {
	s.Kind()
	return s.Offset()
}

// since returns the text from an offset to the current position.
func (s *scanner) since(from int) RawJSON { return RawJSON(s.Since(from)) }
