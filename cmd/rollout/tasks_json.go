package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// How JSON of people is read: strictly, in one pass. encoding/json takes the last of
// two equal keys, and makes U+FFFD of half a surrogate pair: a task would silently be
// another one. Both are errors here, at any depth.

// maxJSONDepth is how deep a task may be nested. Readers of rows in other languages give
// up not far above.
const maxJSONDepth = 256

// A jsonScanner goes over one JSON value.
type jsonScanner struct {
	text  []byte
	at    int
	depth int
}

// A jsonError is about JSON that is well formed, and that others take.
type jsonError struct{ text string }

func (e *jsonError) Error() string { return e.text }

// errNotUTF8 is the error of every other encoding.
var errNotUTF8 = errors.New("not UTF-8")

// errJSONSyntax stands for every error of which encoding/json knows a better text.
var errJSONSyntax = errors.New("syntax")

// scanJSON checks that text is one JSON value and nothing else. member, which may be nil,
// is called with every member of an object at the top; both slices are parts of text.
func scanJSON(text []byte, member func(key string, value json.RawMessage)) error {
	// Decoding would replace what is broken in a prompt, and keep it in metadata, which
	// no column can hold.
	if !utf8.Valid(text) {
		return errNotUTF8
	}
	s := jsonScanner{text: text}
	s.space()
	var err error
	if s.peek() == '{' {
		err = s.object(member)
	} else {
		err = s.value()
	}
	if err == nil {
		if s.space(); s.at < len(text) {
			err = errJSONSyntax
		}
	}
	if errors.Is(err, errJSONSyntax) {
		return syntaxError(text)
	}
	return err
}

// syntaxError says where text is no JSON.
func syntaxError(text []byte) error {
	var v json.RawMessage
	err := json.Unmarshal(text, &v)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%s at byte %d", strings.TrimPrefix(syntax.Error(), "json: "), syntax.Offset)
	}
	return errors.New("not JSON")
}

// peek is the next byte; 0 at the end, which begins no value.
func (s *jsonScanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *jsonScanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// take takes c, or reports that something else comes.
func (s *jsonScanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

func (s *jsonScanner) value() error {
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

func (s *jsonScanner) enter() error {
	s.at++
	if s.depth++; s.depth > maxJSONDepth {
		return &jsonError{fmt.Sprintf("nested deeper than %d levels", maxJSONDepth)}
	}
	return nil
}

// fewKeys is up to how many keys of an object are compared one by one.
const fewKeys = 12

func (s *jsonScanner) object(member func(key string, value json.RawMessage)) error {
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
			return errJSONSyntax
		}
		if err := s.text1(); err != nil {
			return err
		}
		key, _ := jsonText(s.text[from:s.at])
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
			return &jsonError{cut(key, 60) + ": given twice in one object"}
		}
		s.space()
		if !s.take(':') {
			return errJSONSyntax
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
			return errJSONSyntax
		}
	}
}

func (s *jsonScanner) array() error {
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
			return errJSONSyntax
		}
	}
}

// text1 goes over a text with its quotes.
func (s *jsonScanner) text1() error {
	s.at++
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return nil
		case c < ' ':
			return errJSONSyntax
		case c != '\\':
			s.at++
		default:
			if err := s.escape(); err != nil {
				return err
			}
		}
	}
	return errJSONSyntax
}

// escape goes over a backslash and what belongs to it.
func (s *jsonScanner) escape() error {
	if s.at+1 >= len(s.text) {
		return errJSONSyntax
	}
	switch s.text[s.at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at += 2
		return nil
	case 'u':
	default:
		return errJSONSyntax
	}
	first, ok := s.unit(s.at)
	if !ok {
		return errJSONSyntax
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
	return &jsonError{fmt.Sprintf("%s at byte %d: half of a surrogate pair, which is no character", s.text[s.at:s.at+6], s.at+1)}
}

// unit is the number of the \u escape at a place.
func (s *jsonScanner) unit(at int) (n uint32, ok bool) {
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

func (s *jsonScanner) digits() bool {
	from := s.at
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.at++
	}
	return s.at > from
}

func (s *jsonScanner) number() error {
	s.take('-')
	if !s.take('0') && !s.digits() {
		return errJSONSyntax
	}
	if s.take('.') && !s.digits() {
		return errJSONSyntax
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		if !s.digits() {
			return errJSONSyntax
		}
	}
	return nil
}

func (s *jsonScanner) word() error {
	for _, w := range [...]string{"true", "false", "null"} {
		if len(s.text)-s.at >= len(w) && string(s.text[s.at:s.at+len(w)]) == w {
			s.at += len(w)
			return nil
		}
	}
	return errJSONSyntax
}

// jsonText is the text of a JSON string; ok is false for any other value. It must have
// been scanned.
func jsonText(raw []byte) (text string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') >= 0 {
		err := json.Unmarshal(raw, &text)
		return text, err == nil
	}
	return string(raw[1 : len(raw)-1]), true
}

// elements calls yield with the elements of a JSON array, which must have been scanned;
// it returns false for any other value.
func elements(raw json.RawMessage, yield func(json.RawMessage)) bool {
	s := jsonScanner{text: raw}
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
