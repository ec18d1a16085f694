package letta

import "strings"

// skip reads a value of any type.
func (s *scanner) skip() {
	switch c := s.space(); c {
	case '"':
		s.skipString()
	case '{':
		s.skipObject()
	case '[':
		s.skipList()
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		if c != '-' && c-'0' > 9 {
			s.expected("a value")
			return
		}
		s.number()
	}
}

// skipObject reads an object, of which text[i] is the opening brace.
func (s *scanner) skipObject() {
	if !s.enter() {
		return
	}
	if s.space() == '}' {
		s.leave()
		return
	}
	for s.err == nil {
		if s.space() != '"' {
			s.expected("a name")
			return
		}
		s.skipString()
		if s.space() != ':' {
			s.expected("':'")
			return
		}
		s.i++
		s.skip()
		switch s.space() {
		case ',':
			s.i++
		case '}':
			s.leave()
			return
		default:
			s.expected("',' or '}'")
		}
	}
}

// skipList reads an array, of which text[i] is the opening bracket.
func (s *scanner) skipList() {
	if !s.enter() {
		return
	}
	if s.space() == ']' {
		s.leave()
		return
	}
	for s.err == nil {
		s.skip()
		switch s.space() {
		case ',':
			s.i++
		case ']':
			s.leave()
			return
		default:
			s.expected("',' or ']'")
		}
	}
}

// literal reads null, true or false.
func (s *scanner) literal(word string) {
	if !strings.HasPrefix(s.text[s.i:], word) {
		s.expected(word)
		return
	}
	s.i += len(word)
}

// number reads a number and returns its text.
func (s *scanner) number() string {
	text, from := s.text, s.i
	i := from
	if i < len(text) && text[i] == '-' {
		i++
	}
	at := i // of what must be a digit
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
		s.expected("a digit")
		return ""
	}
	return text[from:i]
}

// digitsEnd is the index behind the digits of text from i on.
func digitsEnd(text string, i int) int {
	for i < len(text) && text[i]-'0' <= 9 {
		i++
	}
	return i
}
