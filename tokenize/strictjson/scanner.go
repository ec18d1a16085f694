// Package strictjson reads JSON in one pass and refuses JSON that two readers would read differently.
//
// A [Scanner] reads one text. Its methods read one value each and move past it:
//
//	s := strictjson.New(text, strictjson.Options{})
//	for name := range s.Members {
//		switch name {
//		case "id":
//			id = s.Text()
//		case "metadata":
//			metadata = s.Raw()
//		} // any other value is skipped
//	}
//	err := s.End()
//
// The zero [Options] follow RFC 8259 and also refuse equal names in one object, half of a surrogate
// pair, bytes that are not UTF-8, and nesting deeper than [DefaultDepth]. encoding/json takes the
// last of two equal names and turns half a pair and other bytes into U+FFFD, which changes the text
// silently. Each option allows one of these for a writer that needs it.
//
// The first error stays. After it the scanner is at the end of its text, so callers check [Scanner.End]
// or [Scanner.Err] once, at the end.
package strictjson

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// DefaultDepth is the maximum nesting of arrays and objects. Readers in other languages fail not far
// above it.
const DefaultDepth = 256

// Options are exceptions from the strict rules.
type Options struct {
	// EqualNames allows equal names in one object.
	EqualNames bool
	// HalfPairs reads half of a surrogate pair as U+FFFD.
	HalfPairs bool
	// NonFinite allows the numbers NaN, Infinity and -Infinity, which Python writes.
	NonFinite bool
	// CheckedUTF8 means that the caller knows the text to be UTF-8.
	CheckedUTF8 bool
	// MaxDepth replaces DefaultDepth, unless it is 0.
	MaxDepth int
}

// GoOptions accept what encoding/json accepts, if it is UTF-8. They are for the JSON of servers.
func GoOptions() Options { return Options{EqualNames: true, HalfPairs: true, MaxDepth: 10_000} }

// A Scanner reads one JSON text from front to back, each byte once. The strings that it returns are
// parts of the text if they have no escapes, and keep it in memory.
//
// It is spread over
//
//	scanner.go  objects and arrays
//	text.go     strings
//	skip.go     values that no caller reads, numbers, words
//	error.go    errors
type Scanner struct {
	text  string
	i     int // text[i:] is not read yet
	depth int // arrays and objects around text[i]
	err   error
	opts  Options

	// names are the names of the open objects that were read so far, one object behind the other,
	// unless EqualNames is set.
	names []string
	// unescaped holds the strings that had escapes, one behind the other, and scratch the one that is
	// being read.
	unescaped strings.Builder
	scratch   []byte
	// long is the last long string as written, with its quotes, and longText its text. Some servers
	// send long strings twice. The second time it is compared, which takes a tenth of reading it.
	long, longText string
}

// New returns a Scanner of text.
func New(text string, o Options) *Scanner {
	s := new(Scanner)
	s.Reset(text, o)
	return s
}

// maxScratchBytes bounds the scratch that Reset keeps.
const maxScratchBytes = 1 << 20

// Reset makes s a Scanner of another text. It keeps the scratch memory, and no part of the text
// before.
func (s *Scanner) Reset(text string, o Options) {
	scratch := s.scratch
	if len(scratch) > maxScratchBytes {
		scratch = nil
	}
	*s = Scanner{text: text, opts: o, scratch: scratch}
	if s.opts.MaxDepth == 0 {
		s.opts.MaxDepth = DefaultDepth
	}
	if !o.CheckedUTF8 && !utf8.ValidString(text) {
		s.i = validEnd(text)
		s.ambiguous("not UTF-8")
	}
}

func validEnd(text string) int {
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD") {
			return i
		}
	}
	return len(text)
}

// Check returns nil if text is exactly one JSON value, or an [*Error].
func Check(text string, o Options) error {
	var s Scanner
	s.Reset(text, o)
	s.Skip()
	return s.End()
}

// End checks that only white space follows, and returns the error of the whole text.
func (s *Scanner) End() error {
	if s.err == nil && s.space() != 0 {
		s.Expected("the end")
	}
	return s.err
}

// Err returns the first error, an [*Error].
func (s *Scanner) Err() error { return s.err }

// Kind skips white space and returns the first byte of what follows. It returns '0' for any number,
// and 0 at the end of the text.
func (s *Scanner) Kind() byte {
	c := s.space()
	if c == '-' || c-'0' <= 9 || s.opts.NonFinite && (c == 'N' || c == 'I') {
		return '0'
	}
	return c
}

// space skips white space and returns the byte behind it: 0 at the end of the text, 1 for a control
// character.
func (s *Scanner) space() byte {
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

// Members reads an object and calls yield with each name. yield reads the value; a value that it does
// not read is skipped.
func (s *Scanner) Members(yield func(name string) bool) { s.members(yield, !s.opts.EqualNames) }

// Pairs is like [Scanner.Members], but does not check the names of this object. The caller does.
func (s *Scanner) Pairs(yield func(name string) bool) { s.members(yield, false) }

func (s *Scanner) members(yield func(name string) bool, unique bool) {
	if c := s.Kind(); c != '{' {
		s.Mismatch("an object")
		return
	}
	if !s.enter() {
		return
	}
	if s.space() == '}' {
		s.leave()
		return
	}
	var names nameSet
	names.from = len(s.names)
	for {
		if s.space() != '"' {
			s.Expected("a name")
			return
		}
		at := s.i
		name := s.Text()
		if unique && !s.add(&names, name, at) {
			return
		}
		if s.space() != ':' {
			s.Expected("':'")
			return
		}
		s.i++
		s.space()
		at = s.i
		more := yield(name)
		if s.i == at && s.err == nil {
			s.Skip()
		}
		if s.err != nil {
			s.Under(show(name))
			return
		}
		if !more {
			return
		}
		switch s.space() {
		case ',':
			s.i++
		case '}':
			s.names = s.names[:names.from]
			s.leave()
			return
		default:
			s.Expected("',' or '}'")
			return
		}
	}
}

// A nameSet holds the names of one object: s.names[from:], and also in many if there are more than
// fewNames.
type nameSet struct {
	from int
	many map[string]struct{}
}

// fewNames is the number of names up to which names are compared one by one.
const fewNames = 12

// add adds a name that begins at the offset, or fails if the object has it already.
func (s *Scanner) add(n *nameSet, name string, at int) bool {
	if s.err != nil {
		return false
	}
	before := s.names[n.from:]
	equal := false
	if n.many == nil {
		for _, other := range before {
			equal = equal || other == name
		}
	} else {
		_, equal = n.many[name]
	}
	if equal {
		s.i = at
		s.ambiguous("given twice in one object")
		s.Under(show(name))
		return false
	}
	if s.names == nil {
		s.names = make([]string, 0, 2*fewNames)
	}
	s.names = append(s.names, name)
	if n.many == nil && len(before) == fewNames {
		n.many = make(map[string]struct{}, 4*fewNames)
		for _, other := range before {
			n.many[other] = struct{}{}
		}
	}
	if n.many != nil {
		n.many[name] = struct{}{}
	}
	return true
}

// Elements reads an array and calls yield with the index of each element. yield reads the element; an
// element that it does not read is skipped.
func (s *Scanner) Elements(yield func(i int) bool) {
	if c := s.Kind(); c != '[' {
		s.Mismatch("a list")
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
			s.Skip()
		}
		if s.err != nil {
			s.Under("element " + strconv.Itoa(n))
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
			s.Expected("',' or ']'")
			return
		}
	}
}

// enter moves past the bracket that opens an array or an object.
func (s *Scanner) enter() bool {
	if s.depth == s.opts.MaxDepth {
		s.ambiguous("nested deeper than " + strconv.Itoa(s.opts.MaxDepth) + " levels")
		return false
	}
	s.depth++
	s.i++
	return true
}

// leave moves past the bracket that closes it.
func (s *Scanner) leave() {
	s.depth--
	s.i++
}

// Raw reads a value of any type and returns its text.
func (s *Scanner) Raw() string {
	s.space()
	from := s.i
	s.Skip()
	return s.Since(from)
}

// Offset returns the number of bytes read. It is where a value begins directly after Kind, and in
// Members and Elements before the value is read.
func (s *Scanner) Offset() int { return s.i }

// Since returns the text from an offset to the current position, or "" after an error.
func (s *Scanner) Since(from int) string {
	if s.err != nil {
		return ""
	}
	return s.text[from:s.i]
}

// A Mark is a position to which a Scanner can return.
type Mark struct {
	text            string
	i, depth, names int
	err             error
}

// Mark returns the current position.
func (s *Scanner) Mark() Mark { return Mark{s.text, s.i, s.depth, len(s.names), s.err} }

// Return moves to a position of the same text, with the error that the scanner had there. The objects
// around an earlier position must still be open.
func (s *Scanner) Return(to Mark) {
	s.text, s.i, s.depth, s.names, s.err = to.text, to.i, to.depth, s.names[:min(to.names, len(s.names))], to.err
}
