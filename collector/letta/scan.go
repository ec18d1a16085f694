package letta

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// A scanner reads one JSON text from front to back, each byte once. It returns
// pieces of the text, which therefore is a string: no caller can change it later.
//
// Its outcome equals the outcome of encoding/json, except that an unused member can
// have any type (scan_value.go): the same texts are refused, the last of several
// members with one name wins, null leaves a value as it is, bytes that are not UTF-8
// become U+FFFD, and arrays and objects nest up to maxNesting. The names of members
// come without regard to case, see members.
//
// It is spread over
//
//	scan.go         objects and lists, errors
//	scan_string.go  strings
//	scan_skip.go    values that are not read, numbers and words
//	scan_value.go   values into fields
//	scan_union.go   objects whose members depend on their kind, places to come back to
//
// The first error stays: after it the scanner is at the end of its text, so callers
// check err once, at the end.
type scanner struct {
	text  string
	i     int // text[i:] was not read yet
	depth int // arrays and objects around text[i]
	err   error

	// exact says that the name of the last member was written as members gives it.
	exact bool
	// escaped holds the strings that had to be unescaped, one behind the other, and
	// scratch the one that is being read.
	escaped strings.Builder
	scratch []byte
	// long is the last long string as it is written, with its quotes, and longText what it
	// says. Servers send calls and results twice, in deprecated members too: the second time
	// such a string is compared, which takes a tenth of reading it.
	long, longText string
}

// maxNesting is the limit of encoding/json.
const maxNesting = 10_000

// newScanner returns a scanner of text. A caller that knows that its scanner is not used any
// more can recycle it.
func newScanner(text string) *scanner {
	if !utf8.ValidString(text) {
		text = validText(text)
	}
	return newValidScanner(text)
}

// newValidScanner is newScanner for a text that was found to be UTF-8 before.
func newValidScanner(text string) *scanner {
	s, _ := scanners.Get().(*scanner)
	if s == nil {
		s = new(scanner)
	}
	s.text = text
	return s
}

// scanners keep their scratch.
var scanners sync.Pool

// maxScratchBytes keeps the scratch of a rare huge text from staying for ever.
const maxScratchBytes = 1 << 20

func (s *scanner) recycle() {
	if scratch := s.scratch; len(scratch) <= maxScratchBytes {
		*s = scanner{scratch: scratch}
		scanners.Put(s)
	}
}

// validText puts U+FFFD in place of each byte that is not UTF-8.
func validText(text string) string {
	var b strings.Builder
	for _, r := range text {
		b.WriteRune(r)
	}
	return b.String()
}

// end says that nothing follows, and returns the error of the whole text.
func (s *scanner) end() error {
	if s.err == nil && s.space() != 0 {
		s.expected("the end")
	}
	return s.err
}

// A scanError says what is wrong with a JSON text, and where.
type scanError struct {
	path   string // members and elements from the outside in, each with ": " behind it
	offset int
	what   string
}

func (e *scanError) Error() string {
	return e.path + e.what + " (byte " + strconv.Itoa(e.offset) + ")"
}

// fail keeps the first error and goes to the end of the text.
func (s *scanner) fail(what string) {
	if s.err == nil {
		s.err = &scanError{offset: s.i, what: what}
	}
	s.text = s.text[:0]
	s.i = 0
}

// expected is fail where the text is not JSON.
func (s *scanner) expected(what string) {
	if s.i >= len(s.text) {
		s.fail("not JSON: the text ends where " + what + " is expected")
		return
	}
	s.fail(fmt.Sprintf("not JSON: %q where %s is expected", s.text[s.i:s.i+1], what))
}

// mismatch is fail if another type is expected than the type of the value that begins
// with c.
func (s *scanner) mismatch(want string, c byte) {
	found := ""
	switch {
	case c == '"':
		found = "a string"
	case c == '{':
		found = "an object"
	case c == '[':
		found = "a list"
	case c == 't' || c == 'f':
		found = "a boolean"
	case c == '-' || c-'0' <= 9:
		found = "a number"
	default:
		s.expected(want)
		return
	}
	s.fail(found + " where " + want + " is expected")
}

// under puts a member or an element in front of the path of the error.
func (s *scanner) under(where string) {
	if e, is := s.err.(*scanError); is { //nolint:errorlint // made here, never wrapped
		e.path = where + ": " + e.path
	}
}

// space skips white space and returns the byte behind it, which it does not consume:
// 0 at the end of the text, 1 for a control character.
func (s *scanner) space() byte {
	for s.i < len(s.text) {
		c := s.text[s.i]
		if c > ' ' {
			return c
		}
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return 1
		}
		s.i++
	}
	return 0
}

// members reads an object and calls yield with the name of each member, in lower case
// where it is written otherwise: encoding/json matches names without regard to case, and
// all of ours are in lower case. yield reads the value; one that it leaves is skipped.
// Null has no members.
func (s *scanner) members(yield func(name string) bool) {
	switch c := s.space(); c {
	case '{':
	case 'n':
		s.literal("null")
		return
	default:
		s.mismatch("an object", c)
		return
	}
	if !s.enter() {
		return
	}
	if s.space() == '}' {
		s.leave()
		return
	}
	for {
		if s.space() != '"' {
			s.expected("a name")
			return
		}
		name := s.name()
		if s.space() != ':' {
			s.expected("':'")
			return
		}
		s.i++
		s.space()
		at := s.i
		more := yield(name)
		if s.i == at && s.err == nil {
			s.skip()
		}
		if s.err != nil {
			s.under(name)
			return
		}
		if !more {
			return
		}
		switch s.space() {
		case ',':
			s.i++
		case '}':
			s.leave()
			return
		default:
			s.expected("',' or '}'")
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

// elements reads an array and calls yield with the index of each element. yield reads
// it; one that it leaves is skipped. Null has no elements.
func (s *scanner) elements(yield func(i int) bool) {
	switch c := s.space(); c {
	case '[':
	case 'n':
		s.literal("null")
		return
	default:
		s.mismatch("a list", c)
		return
	}
	if !s.enter() {
		return
	}
	if s.space() == ']' {
		s.leave()
		return
	}
	for n := 0; ; n++ {
		s.space()
		at := s.i
		more := yield(n)
		if s.i == at && s.err == nil {
			s.skip()
		}
		if s.err != nil {
			s.under("element " + strconv.Itoa(n))
			return
		}
		if !more {
			return
		}
		switch s.space() {
		case ',':
			s.i++
		case ']':
			s.leave()
			return
		default:
			s.expected("',' or ']'")
			return
		}
	}
}

// enter goes past the bracket that opens an array or an object.
func (s *scanner) enter() bool {
	if s.depth == maxNesting {
		s.fail("not JSON: nested too deeply")
		return false
	}
	s.depth++
	s.i++
	return true
}

// leave goes past the bracket that closes it.
func (s *scanner) leave() {
	s.depth--
	s.i++
}

// name reads the name of a member in lower case.
func (s *scanner) name() string {
	name := s.string()
	s.exact = true
	for i := range len(name) {
		if c := name[i]; c-'A' < 26 || c >= utf8.RuneSelf {
			s.exact = false
			return strings.Map(foldRune, name)
		}
	}
	return name
}

// foldRune is the small ASCII letter that a rune is equal to without regard to case.
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

// null reads a null where there is one.
func (s *scanner) null() bool {
	if s.space() != 'n' {
		return false
	}
	s.literal("null")
	return true
}

// raw reads a value of any type and returns its text.
func (s *scanner) raw() RawJSON {
	from := s.start()
	s.skip()
	return s.since(from)
}

// start goes to where a value begins and returns the place, for since.
func (s *scanner) start() int {
	s.space()
	return s.i
}

// since returns the text from a place on.
func (s *scanner) since(from int) RawJSON {
	if s.err != nil {
		return ""
	}
	return RawJSON(s.text[from:s.i])
}
