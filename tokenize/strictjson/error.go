package strictjson

import (
	"fmt"
	"strconv"
)

// An Error reports where a text is not what is expected.
type Error struct {
	// Path is the names and elements around the place from the outside in, each with ": " behind it.
	Path string
	// Offset is the place in bytes from the beginning of the text.
	Offset int
	// Problem is what is wrong, in words.
	Problem string
	// Ambiguous means that the text is JSON for some readers, but they read it differently.
	Ambiguous bool
}

func (e *Error) Error() string { return e.Path + e.Problem + " (byte " + strconv.Itoa(e.Offset) + ")" }

// Fail sets the error, unless there is one, and moves to the end of the text.
func (s *Scanner) Fail(what string) { s.FailAt(s.i, what) }

// FailAt is like [Scanner.Fail] with an error at an offset.
func (s *Scanner) FailAt(offset int, what string) { s.FailWith(&Error{Offset: offset, Problem: what}) }

// FailWith is like [Scanner.Fail] with any error.
func (s *Scanner) FailWith(err error) {
	if s.err == nil {
		s.err = err
	}
	s.text = s.text[:0]
	s.i = 0
}

func (s *Scanner) ambiguous(what string) {
	s.FailWith(&Error{Offset: s.i, Problem: what, Ambiguous: true})
}

// Expected fails because the text is not JSON.
func (s *Scanner) Expected(what string) {
	if s.i >= len(s.text) {
		s.Fail("the text ends where " + what + " is expected")
		return
	}
	s.Fail(fmt.Sprintf("%q where %s is expected", s.text[s.i:s.i+1], what))
}

// Mismatch fails because the next value has another type than the expected one.
func (s *Scanner) Mismatch(want string) {
	found := ""
	switch s.Kind() {
	case '"':
		found = "a string"
	case '{':
		found = "an object"
	case '[':
		found = "a list"
	case 't', 'f':
		found = "a boolean"
	case 'n':
		found = "null"
	case '0':
		found = "a number"
	default:
		s.Expected(want)
		return
	}
	s.Fail(found + " where " + want + " is expected")
}

// maxPath is the length from which a path does not grow.
const maxPath = 100

// Under puts a member or an element in front of the path of the error.
func (s *Scanner) Under(where string) {
	if e, is := s.err.(*Error); is && len(e.Path) < maxPath { //nolint:errorlint // made here, never wrapped
		e.Path = where + ": " + e.Path
	}
}

// show returns a name that fits into a message.
func show(name string) string {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || i == 60 {
			return fmt.Sprintf("%.60q", name)
		}
	}
	return name
}
