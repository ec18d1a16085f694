package strictjson

import (
	"fmt"
	"strconv"
)

// An Error reports that the text is not JSON, is ambiguous or has a value of an unexpected type.
type Error struct {
	// Path is the path to the error: the names of members and the indexes of elements, from the
	// outermost to the innermost, each followed by ": ".
	Path string
	// Offset is the position of the error, in bytes from the beginning of the text.
	Offset int
	// Problem describes the error in words.
	Problem string
	// Ambiguous is true if some parsers accept the text but interpret it differently.
	Ambiguous bool
}

func (e *Error) Error() string { return e.Path + e.Problem + " (byte " + strconv.Itoa(e.Offset) + ")" }

// Fail sets the error, unless an error is already set, and moves to the end of the text. The string
// what describes the problem.
func (s *Scanner) Fail(what string) { s.FailAt(s.i, what) }

// FailAt is like [Scanner.Fail], but for a problem at the given offset.
func (s *Scanner) FailAt(offset int, what string) { s.FailWith(&Error{Offset: offset, Problem: what}) }

// FailWith is like [Scanner.Fail], but sets the error to err.
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

// Expected sets the error for text that is not JSON. The string what describes the text that was
// expected at the current position.
func (s *Scanner) Expected(what string) {
	if s.i >= len(s.text) {
		s.Fail("the text ends where " + what + " is expected")
		return
	}
	s.Fail(fmt.Sprintf("%q where %s is expected", s.text[s.i:s.i+1], what))
}

// Mismatch sets the error for a value of the wrong type. The string want describes the expected
// type.
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

// maxPath is the length, in bytes, at which a path stops growing.
const maxPath = 100

// Under prepends the name of a member or of an element to the path of the error.
func (s *Scanner) Under(where string) {
	if e, is := s.err.(*Error); is && len(e.Path) < maxPath { //nolint:errorlint // made here, never wrapped
		e.Path = where + ": " + e.Path
	}
}

// show returns name for use in a message, quoted and shortened if necessary.
func show(name string) string {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || i == 60 {
			return fmt.Sprintf("%.60q", name)
		}
	}
	return name
}
