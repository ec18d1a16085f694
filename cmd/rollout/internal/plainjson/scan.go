// Package plainjson parses and writes the JSON of users. It parses strictly: JSON that two parsers
// would read differently is an error. It writes without HTML escapes.
package plainjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// Strict parsing, in one pass. encoding/json keeps the last of two equal keys and turns half a
// surrogate pair into U+FFFD, which would silently change a task. Both are errors here.

// maxDepth is the maximum nesting depth. Readers of rows in other languages fail not far above it.
const maxDepth = 256

// A scanner scans one JSON value.
type scanner struct {
	text  []byte
	at    int
	depth int
}

// An AmbiguousError reports well-formed JSON that parsers read differently.
type AmbiguousError struct{ text string }

func (e *AmbiguousError) Error() string { return e.text }

// ErrNotUTF8 is the error for every other encoding.
var ErrNotUTF8 = errors.New("not UTF-8")

// errSyntax stands for errors that encoding/json describes better.
var errSyntax = errors.New("syntax")

// Scan checks that text is exactly one JSON value. It calls member, which can be nil, for each
// member of a top-level object. Both arguments are slices of text.
func Scan(text []byte, member func(key string, value json.RawMessage)) error {
	// Decoding would replace invalid bytes in a prompt, and keep them in metadata, which no column
	// can store.
	if !utf8.Valid(text) {
		return ErrNotUTF8
	}
	s := scanner{text: text}
	s.space()
	var err error
	if s.peek() == '{' {
		err = s.object(member)
	} else {
		err = s.value()
	}
	if err == nil {
		if s.space(); s.at < len(text) {
			err = errSyntax
		}
	}
	if errors.Is(err, errSyntax) {
		return syntaxError(text)
	}
	return err
}

// syntaxError describes where text is not JSON.
func syntaxError(text []byte) error {
	var v json.RawMessage
	err := json.Unmarshal(text, &v)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%s at byte %d", strings.TrimPrefix(syntax.Error(), "json: "), syntax.Offset)
	}
	return errors.New("not JSON")
}

// peek returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// take consumes c, or returns false if another byte follows.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) value() error {
	switch c := s.peek(); {
	case c == '"':
		return s.text1()
	case c == '{':
		return s.object(nil)
	case c == '[':
		return s.array()
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	default:
		return s.word()
	}
}

func (s *scanner) enter() error {
	s.at++
	if s.depth++; s.depth > maxDepth {
		return &AmbiguousError{fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	return nil
}

// fewKeys is the number of keys up to which keys are compared one by one.
const fewKeys = 12

func (s *scanner) object(member func(key string, value json.RawMessage)) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer func() { s.depth-- }()
	var few [fewKeys]string
	seen := few[:0]
	var many map[string]struct{}
	s.space()
	if s.take('}') {
		return nil
	}
	for {
		s.space()
		from := s.at
		if s.peek() != '"' {
			return errSyntax
		}
		if err := s.text1(); err != nil {
			return err
		}
		key, _ := Text(s.text[from:s.at])
		twice := false
		if len(seen) < fewKeys {
			for _, k := range seen {
				twice = twice || k == key
			}
			seen = append(seen, key)
		} else {
			if many == nil {
				many = make(map[string]struct{}, 2*fewKeys)
				for _, k := range seen {
					many[k] = struct{}{}
				}
			}
			_, twice = many[key]
			many[key] = struct{}{}
		}
		if twice {
			return &AmbiguousError{termsafe.Text(key, 60) + ": given twice in one object"}
		}
		s.space()
		if !s.take(':') {
			return errSyntax
		}
		s.space()
		from = s.at
		if err := s.value(); err != nil {
			return err
		}
		if member != nil {
			member(key, s.text[from:s.at:s.at])
		}
		s.space()
		if s.take('}') {
			return nil
		}
		if !s.take(',') {
			return errSyntax
		}
	}
}

func (s *scanner) array() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer func() { s.depth-- }()
	s.space()
	if s.take(']') {
		return nil
	}
	for {
		s.space()
		if err := s.value(); err != nil {
			return err
		}
		s.space()
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
			return errSyntax
		}
	}
}

// text1 scans a string with its quotes.
func (s *scanner) text1() error {
	s.at++
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return nil
		case c < ' ':
			return errSyntax
		case c != '\\':
			s.at++
		default:
			if err := s.escape(); err != nil {
				return err
			}
		}
	}
	return errSyntax
}

// escape scans an escape sequence.
func (s *scanner) escape() error {
	if s.at+1 >= len(s.text) {
		return errSyntax
	}
	switch s.text[s.at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at += 2
		return nil
	case 'u':
	default:
		return errSyntax
	}
	first, ok := s.unit(s.at)
	if !ok {
		return errSyntax
	}
	switch {
	case first < 0xd800 || first > 0xdfff:
		s.at += 6
		return nil
	case first < 0xdc00:
		if second, ok := s.unit(s.at + 6); ok && second >= 0xdc00 && second <= 0xdfff {
			s.at += 12
			return nil
		}
	}
	return &AmbiguousError{fmt.Sprintf("%s at byte %d: half a surrogate pair", s.text[s.at:s.at+6], s.at+1)}
}

// unit decodes the \u escape at a position.
func (s *scanner) unit(at int) (n uint32, ok bool) {
	if at+6 > len(s.text) || s.text[at] != '\\' || s.text[at+1] != 'u' {
		return 0, false
	}
	for _, c := range s.text[at+2 : at+6] {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint32(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint32(c-'a'+10)
		case c >= 'A' && c <= 'F':
			n = n<<4 | uint32(c-'A'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

func (s *scanner) digits() bool {
	from := s.at
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.at++
	}
	return s.at > from
}

func (s *scanner) number() error {
	s.take('-')
	if !s.take('0') && !s.digits() {
		return errSyntax
	}
	if s.take('.') && !s.digits() {
		return errSyntax
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		if !s.digits() {
			return errSyntax
		}
	}
	return nil
}

func (s *scanner) word() error {
	for _, w := range [...]string{"true", "false", "null"} {
		if len(s.text)-s.at >= len(w) && string(s.text[s.at:s.at+len(w)]) == w {
			s.at += len(w)
			return nil
		}
	}
	return errSyntax
}

// Text returns the text of a JSON string. ok is false for any other value. raw must have been
// scanned.
func Text(raw []byte) (text string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') >= 0 {
		err := json.Unmarshal(raw, &text)
		return text, err == nil
	}
	return string(raw[1 : len(raw)-1]), true
}

// Elements calls yield with the elements of a JSON array, which must have been scanned. It returns
// false for any other value.
func Elements(raw json.RawMessage, yield func(json.RawMessage)) bool {
	s := scanner{text: raw}
	if !s.take('[') {
		return false
	}
	for s.space(); !s.take(']'); s.space() {
		from := s.at
		if s.value() != nil {
			return false // it was not scanned
		}
		yield(raw[from:s.at:s.at])
		s.space()
		s.take(',')
	}
	return true
}
