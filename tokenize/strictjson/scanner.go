// Package strictjson reads JSON in one pass and refuses JSON that two parsers could interpret
// differently.
//
// A [Scanner] reads one JSON text. A method such as Text or Raw reads one value and moves past it:
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
// With the zero [Options], a Scanner follows RFC 8259 and also refuses duplicate names in one
// object, lone surrogates, invalid UTF-8, and nesting deeper than [DefaultDepth]. By contrast,
// encoding/json accepts a duplicate name and uses its last value. It also silently changes the
// text, because it replaces lone surrogates and invalid UTF-8 with U+FFFD. Each option allows one
// exception, for text from a program that needs this exception.
//
// A Scanner keeps its first error. After an error, the Scanner is at the end of its text, so
// callers only need to check [Scanner.End] or [Scanner.Err] once, at the end.
package strictjson

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// DefaultDepth is the default maximum nesting of arrays and objects. Some parsers in other
// languages fail at depths that are only slightly greater.
const DefaultDepth = 256

// Options are exceptions to the strict rules.
type Options struct {
	// EqualNames allows duplicate names in one object.
	EqualNames bool
	// HalfPairs allows a lone surrogate and reads it as U+FFFD.
	HalfPairs bool
	// NonFinite allows the numbers NaN, Infinity and -Infinity, which Python writes.
	NonFinite bool
	// CheckedUTF8 is true if the caller has already checked that the text is valid UTF-8.
	CheckedUTF8 bool
	// MaxDepth is the maximum nesting of arrays and objects. 0 means DefaultDepth.
	MaxDepth int
}

// GoOptions returns options that accept the same text as encoding/json, except for invalid UTF-8.
// Use these options for JSON from servers.
func GoOptions() Options { return Options{EqualNames: true, HalfPairs: true, MaxDepth: 10_000} }

// A Scanner reads one JSON text from front to back. If a returned string has no escapes, it is a
// substring of the text and keeps the whole text in memory.
//
// The code of the Scanner is in these files:
//
//	scanner.go  objects and arrays
//	text.go     strings
//	skip.go     values that no caller reads, numbers, words
//	error.go    errors
type Scanner struct {
	text  string
	i     int // text[i:] has not been read yet
	depth int // number of arrays and objects around text[i]
	err   error
	opts  Options

	// names holds the names read so far in the open objects, one object after another. It is not
	// used if EqualNames is set.
	names []string
	// unescaped holds the values of strings that had escapes, one after another. The buffer scratch
	// holds the value of the string that is being read.
	unescaped strings.Builder
	scratch   []byte
	// long is the last long string as written, including its quotes, and longText is its value.
	// Some servers send long strings twice. Comparing the second copy takes a tenth of the time
	// needed to read it.
	long, longText string
}

// New returns a Scanner for text.
func New(text string, o Options) *Scanner {
	s := new(Scanner)
	s.Reset(text, o)
	return s
}

// maxScratchBytes limits the scratch memory that Reset keeps.
const maxScratchBytes = 1 << 20

// Reset prepares s to read another text. It keeps the scratch memory but does not keep a reference
// to the previous text.
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

// End checks that only white space follows. It returns the first error in the whole text, or nil.
func (s *Scanner) End() error {
	if s.err == nil && s.space() != 0 {
		s.Expected("the end")
	}
	return s.err
}

// Err returns the first error, or nil. It is an [*Error] unless FailWith has set it.
func (s *Scanner) Err() error { return s.err }

// Kind skips white space and returns the first byte of the next value without consuming it. It
// returns '0' for any number, and 0 at the end of the text.
func (s *Scanner) Kind() byte {
	c := s.space()
	if c == '-' || c-'0' <= 9 || s.opts.NonFinite && (c == 'N' || c == 'I') {
		return '0'
	}
	return c
}

// space skips white space and returns the next byte without consuming it. It returns 0 at the end
// of the text and 1 for a control character.
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

// Members reads an object and calls yield with each name. The function yield can read the value. If
// it does not, Members skips the value.
func (s *Scanner) Members(yield func(name string) bool) { s.members(yield, !s.opts.EqualNames) }

// Pairs is like [Scanner.Members], but leaves the check for duplicate names in this object to the
// caller.
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

// A nameSet is the set of names in one object. The names are s.names[from:]. If there are more than
// fewNames names, the map many also holds the names.
type nameSet struct {
	from int
	many map[string]struct{}
}

// fewNames is the largest number of names that are compared one by one.
const fewNames = 12

// add adds a name that begins at the given offset. If the object already has this name, add sets an
// error and returns false.
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
		s.ambiguous("duplicate key")
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

// Elements reads an array and calls yield with the index of each element. The function yield can
// read the element. If it does not, Elements skips the element.
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

// leave moves past the bracket that closes an array or an object.
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

// Offset returns the number of bytes consumed. Directly after a call of Kind, this is the start of
// the next value. When Members or Elements calls yield, it is also the start of the next value.
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

// Return moves to a position in the same text and restores the error that the Scanner had at that
// position. If that position is before the current position, the objects around it must still be
// open.
func (s *Scanner) Return(to Mark) {
	s.text, s.i, s.depth, s.names, s.err = to.text, to.i, to.depth, s.names[:min(to.names, len(s.names))], to.err
}
