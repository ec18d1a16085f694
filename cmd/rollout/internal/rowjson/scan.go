package rowjson

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner scans one line. Its position is undefined after an error.
type scanner struct {
	text string
	at   int
}

// peek returns the next byte that is not white space, or 0 at the end.
func (s *scanner) peek() byte {
	for s.at < len(s.text) {
		c := s.text[s.at]
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c
		}
		s.at++
	}
	return 0
}

// take consumes c if it comes next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// null consumes null if it comes next.
func (s *scanner) null() bool {
	if s.peek() != 'n' || !strings.HasPrefix(s.text[s.at:], null) {
		return false
	}
	s.at += len(null)
	return true
}

// wrong returns an error that shows the text at the current position.
func (s *scanner) wrong(want string) error {
	if s.peek() == 0 {
		return errors.New("the line ends early")
	}
	rest := s.text[s.at:min(len(s.text), s.at+24)]
	for len(rest) > 0 && !utf8.ValidString(rest) {
		rest = rest[:len(rest)-1]
	}
	return fmt.Errorf("byte %d: %q, want %s", s.at+1, rest, want)
}

func (s *scanner) boolean() (bool, error) {
	s.peek()
	for word, v := range map[string]bool{"true": true, "false": false} {
		if strings.HasPrefix(s.text[s.at:], word) {
			s.at += len(word)
			return v, nil
		}
	}
	return false, s.wrong("true or false")
}

// integer parses an integer with the given number of bits.
func (s *scanner) integer(bits int) (int64, error) {
	c := s.peek()
	from := s.at
	if c == '-' {
		s.at++
	}
	digits := s.at
	var n uint64
	for s.at < len(s.text) && s.text[s.at]-'0' <= 9 && s.at-digits < 19 {
		n = n*10 + uint64(s.text[s.at]-'0')
		s.at++
	}
	most := uint64(1)<<(bits-1) - 1
	if c == '-' {
		most++
	}
	switch {
	case s.at == digits, s.at-digits > 1 && s.text[digits] == '0', c == '-' && n == 0,
		s.at < len(s.text) && strings.IndexByte("0123456789.eE+-", s.text[s.at]) >= 0:
		s.at = from
		return 0, s.wrong(fmt.Sprintf("an integer of %d bits", bits))
	case n > most:
		s.at = from
		return 0, s.wrong(fmt.Sprintf("an integer of %d bits: it is too large", bits))
	case c == '-':
		return -int64(n), nil //nolint:gosec // 1<<63 is its own negative
	}
	return int64(n), nil
}

// float32 parses a 32-bit float.
func (s *scanner) float32() (float32, error) {
	if s.peek() == '"' {
		bits, err := s.special(32)
		return math.Float32frombits(uint32(bits)), err
	}
	v, err := s.number(32)
	return float32(v), err
}

// float64 parses a 64-bit float.
func (s *scanner) float64() (float64, error) {
	if s.peek() == '"' {
		bits, err := s.special(64)
		return math.Float64frombits(bits), err
	}
	return s.number(64)
}

func (s *scanner) number(bits int) (float64, error) {
	if end := s.at + 1; end < len(s.text) && s.text[s.at] == '0' && (s.text[end] == ',' || s.text[end] == ']') {
		s.at++
		return 0, nil // the most frequent value
	}
	from := s.at
	for s.at < len(s.text) && strings.IndexByte("0123456789.eE+-", s.text[s.at]) >= 0 {
		s.at++
	}
	word := s.text[from:s.at]
	if !isNumber(word) {
		s.at = from
		return 0, s.wrong("a number")
	}
	v, err := strconv.ParseFloat(word, bits)
	if err != nil {
		s.at = from
		return 0, s.wrong(fmt.Sprintf("a float of %d bits: it is too large", bits))
	}
	return v, nil
}

// special parses a float without a JSON number and returns its bits.
func (s *scanner) special(size int) (uint64, error) {
	from := s.at
	word, err := s.str()
	if err != nil {
		return 0, err
	}
	inf, nan, sign := uint64(0x7f800000), uint64(plainNaN32), uint64(1)<<31
	if size == 64 {
		inf, nan, sign = 0x7ff0000000000000, plainNaN64, 1<<63
	}
	switch word {
	case "Infinity":
		return inf, nil
	case "-Infinity":
		return inf | sign, nil
	case "NaN":
		return nan, nil
	}
	digits, ok := strings.CutPrefix(word, "NaN:")
	if bits, err := strconv.ParseUint(digits, 16, size); ok && err == nil && len(digits) == size/4 && bits&^sign > inf {
		return bits, nil
	}
	s.at = from
	return 0, s.wrong(`a number, "NaN", "Infinity" or "-Infinity"`)
}

// isNumber reports whether word is a JSON number.
func isNumber(word string) bool {
	digits := func() bool {
		n := 0
		for n < len(word) && word[n]-'0' <= 9 {
			n++
		}
		word = word[n:]
		return n > 0
	}
	word = strings.TrimPrefix(word, "-")
	if strings.HasPrefix(word, "0") {
		word = word[1:]
	} else if !digits() {
		return false
	}
	if strings.HasPrefix(word, ".") {
		if word = word[1:]; !digits() {
			return false
		}
	}
	if word != "" && (word[0] == 'e' || word[0] == 'E') {
		if word = word[1:]; word != "" && (word[0] == '+' || word[0] == '-') {
			word = word[1:]
		}
		if !digits() {
			return false
		}
	}
	return word == ""
}

// str parses a string.
func (s *scanner) str() (string, error) {
	if !s.take('"') {
		return "", s.wrong("a string")
	}
	from := s.at
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[from : s.at-1], nil
		case c == '\\':
			return s.escaped(from)
		case c < ' ':
			return "", fmt.Errorf("byte %d: a control character in a string", s.at+1)
		}
		s.at++
	}
	return "", errors.New("the line ends early")
}

// escaped continues str at the first escape of a string that begins at from.
func (s *scanner) escaped(from int) (string, error) {
	b := []byte(s.text[from:s.at])
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch {
		case c == '"':
			s.at++
			return string(b), nil
		case c < ' ':
			return "", fmt.Errorf("byte %d: a control character in a string", s.at+1)
		case c != '\\':
			b = append(b, c)
			s.at++
			continue
		}
		if s.at+1 >= len(s.text) {
			break
		}
		c = s.text[s.at+1]
		if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
			b = append(b, "\"\\/\b\f\n\r\t"[i])
			s.at += 2
			continue
		}
		r, ok := s.unicode()
		if !ok {
			return "", s.wrong("a JSON escape (half a surrogate pair is not one)")
		}
		b = utf8.AppendRune(b, r)
	}
	return "", errors.New("the line ends early")
}

// unicode decodes \uXXXX, or two of them as a surrogate pair.
func (s *scanner) unicode() (rune, bool) {
	one := func() (rune, bool) {
		if len(s.text)-s.at < 6 || s.text[s.at] != '\\' || s.text[s.at+1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(s.text[s.at+2:s.at+6], 16, 16)
		if err != nil {
			return 0, false
		}
		s.at += 6
		return rune(n), true
	}
	from := s.at
	r, ok := one()
	if ok && utf16.IsSurrogate(r) {
		low, _ := one()
		r = utf16.DecodeRune(r, low)
		ok = r != utf8.RuneError
	}
	if !ok {
		s.at = from
	}
	return r, ok
}
