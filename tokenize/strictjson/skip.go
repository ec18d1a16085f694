package strictjson

import (
	"fmt"
	"strconv"
	"strings"
)

// Skip reads a value of any type and discards it.
func (s *Scanner) Skip() {
	switch s.Kind() {
	case '"':
		s.skipText()
	case '{':
		s.Members(ignoreName)
	case '[':
		s.Elements(ignoreIndex)
	case 't':
		s.word("true")
	case 'f':
		s.word("false")
	case 'n':
		s.word("null")
	case '0':
		s.Number()
	default:
		s.Expected("a value")
	}
}

func ignoreName(string) bool { return true }

func ignoreIndex(int) bool { return true }

// Null reports whether the next value is null, and if so, reads it.
func (s *Scanner) Null() bool {
	if s.space() != 'n' {
		return false
	}
	s.word("null")
	return true
}

// word reads the given literal: null, true or false.
func (s *Scanner) word(word string) {
	s.space()
	if !strings.HasPrefix(s.text[s.i:], word) {
		s.Expected("a value")
		return
	}
	s.i += len(word)
}

// Bool reads true or false.
func (s *Scanner) Bool() bool {
	switch s.Kind() {
	case 't':
		s.word("true")
		return s.err == nil
	case 'f':
		s.word("false")
	default:
		s.Mismatch("a boolean")
	}
	return false
}

// Number reads a number and returns its text.
func (s *Scanner) Number() string {
	if s.Kind() != '0' {
		s.Mismatch("a number")
		return ""
	}
	text, from := s.text, s.i
	i := from
	if text[i] == '-' {
		i++
	}
	if s.opts.NonFinite && i < len(text) && (text[i] == 'I' || text[i] == 'N') {
		return s.nonFinite()
	}
	at := i // the byte at this position must be a digit
	if i = digitsEnd(text, i); i > at+1 && text[at] == '0' {
		i = at + 1
	}
	if i > at && i < len(text) && text[i] == '.' {
		at = i + 1
		i = digitsEnd(text, at)
	}
	if i > at && i < len(text) && text[i]|0x20 == 'e' {
		at = i + 1
		if at < len(text) && (text[at] == '+' || text[at] == '-') {
			at++
		}
		i = digitsEnd(text, at)
	}
	s.i = i
	if i == at {
		s.Expected("a digit")
		return ""
	}
	return text[from:i]
}

// Int reads an integer that fits in the given number of bits.
func (s *Scanner) Int(bits int) int64 {
	if s.Kind() != '0' {
		s.Mismatch("an integer")
		return 0
	}
	at := s.i
	text := s.Number()
	if s.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		s.FailAt(at, fmt.Sprintf("the number %.40s where an integer of %d bits is expected", text, bits))
		return 0
	}
	return n
}

func (s *Scanner) nonFinite() string {
	for _, word := range [...]string{"NaN", "Infinity", "-Infinity"} {
		if strings.HasPrefix(s.text[s.i:], word) {
			s.i += len(word)
			return word
		}
	}
	s.Expected("a number")
	return ""
}

// digitsEnd returns the end of the digits that begin at text[i].
func digitsEnd(text string, i int) int {
	for i < len(text) && text[i]-'0' <= 9 {
		i++
	}
	return i
}
