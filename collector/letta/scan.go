package letta

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads one JSON text from front to back, each byte once. What it returns
// are pieces of the text, which therefore is a string: nobody can change it later.
//
// Its outcome is that of encoding/json: the same texts are refused, the last of several
// members with one name wins, null leaves a value as it is, bytes that are not UTF-8
// become U+FFFD, and arrays and objects nest up to maxNesting. The names of members
// come without regard to case, see members.
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
}

// maxNesting is the limit of encoding/json.
const maxNesting = 10_000

// newScanner returns a scanner of text. Whoever knows that its scanner is not used any
// more may recycle it.
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

// mismatch is fail where another type is expected than that of the value that begins
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

// within reads the text of a member that was set aside.
func (s *scanner) within(text RawJSON, name string, read func(s *scanner)) {
	inner := &scanner{text: string(text), depth: s.depth}
	if read(inner); inner.err != nil {
		s.fail("")
		s.err = inner.err
		s.under(name)
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

// string reads a string, of which text[i] is the opening quote.
func (s *scanner) string() string {
	from := s.i + 1
	i := plainEnd(s.text, from)
	if i < len(s.text) && s.text[i] == '"' {
		s.i = i + 1
		return s.text[from:i]
	}
	return s.unescape(from, i)
}

// skipString reads a string, of which text[i] is the opening quote, and forgets it.
func (s *scanner) skipString() {
	text, i := s.text, s.i+1
	for {
		i = plainEnd(text, i)
		if i >= len(text) {
			s.i = len(text)
			s.expected("the end of a string")
			return
		}
		switch text[i] {
		case '"':
			s.i = i + 1
			return
		case '\\':
			_, n := escape(text[i:])
			if n == 0 {
				s.badEscape(i)
				return
			}
			i += n
		default:
			s.i = i
			s.fail("not JSON: a control character in a string")
			return
		}
	}
}

// unescape reads a string that began at from and has its first special byte at i.
func (s *scanner) unescape(from, i int) string {
	text, n := s.text, i-from
	s.grow(n + 8)
	copy(s.scratch, text[from:i])
	for i < len(text) {
		s.grow(n + 8)
		if i+8 <= len(text) {
			w := load64(text, i)
			binary.LittleEndian.PutUint64(s.scratch[n:], w) // what is special in it is written over
			k := 8
			if m := special(w); m != 0 {
				k = bits.TrailingZeros64(m) >> 3
			}
			n += k
			if i += k; k == 8 {
				continue
			}
		}
		switch c := text[i]; {
		case c == '"':
			s.i = i + 1
			return s.keep(s.scratch[:n])
		case c < ' ':
			s.i = i
			s.fail("not JSON: a control character in a string")
			return ""
		case c != '\\':
			s.scratch[n] = c
			n++
			i++
		case i+1 < len(text) && simpleEscapes[text[i+1]] != 0:
			s.scratch[n] = simpleEscapes[text[i+1]]
			n++
			i += 2
		default:
			r, size := escape(text[i:])
			if size == 0 {
				s.badEscape(i)
				return ""
			}
			n += utf8.EncodeRune(s.scratch[n:], r)
			i += size
		}
	}
	s.i = len(text)
	s.expected("the end of a string")
	return ""
}

// simpleEscapes are the characters of the escapes of two characters.
var simpleEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// grow makes scratch at least n bytes long.
func (s *scanner) grow(n int) {
	if n > len(s.scratch) {
		s.scratch = append(s.scratch, make([]byte, max(n-len(s.scratch), len(s.scratch), 1<<10))...)
	}
}

// keep returns the bytes as a string that lies behind the others of escaped. What was
// there before stays where it is.
func (s *scanner) keep(b []byte) string {
	if s.escaped.Cap()-s.escaped.Len() < len(b) {
		const least = 4 << 10
		size := max(least, 2*s.escaped.Cap())
		size = max(len(b), min(size, len(b)+len(s.text)-s.i)) // what is to come does not need more
		s.escaped.Reset()
		s.escaped.Grow(size)
	}
	start := s.escaped.Len()
	s.escaped.Write(b)
	return s.escaped.String()[start:]
}

func (s *scanner) badEscape(i int) {
	s.i = i
	s.fail("not JSON: an unknown escape in a string")
}

// escape reads the escape sequence at the start of text and returns its length, 0 where
// there is none. As in encoding/json, half of a surrogate pair becomes U+FFFD.
func escape(text string) (r rune, n int) {
	if len(text) < 2 {
		return 0, 0
	}
	if c := simpleEscapes[text[1]]; c != 0 {
		return rune(c), 2
	}
	if text[1] != 'u' {
		return 0, 0
	}
	r = hex4(text[2:])
	switch {
	case r < 0:
		return 0, 0
	case !utf16.IsSurrogate(r):
		return r, 6
	}
	if rest := text[6:]; len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(rest[2:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return utf8.RuneError, 6
}

// hex4 reads four hexadecimal digits, -1 where there are none.
func hex4(text string) rune {
	if len(text) < 4 {
		return -1
	}
	var r rune
	for i := range 4 {
		c := text[i]
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20-'a' < 6:
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// special marks with 0x80 the bytes of w that end a plain stretch of a string: quote,
// backslash, control characters. The lowest mark is exact.
func special(w uint64) uint64 {
	q := w ^ '"'*lowBits
	e := w ^ '\\'*lowBits
	return ((q-lowBits)&^q | (e-lowBits)&^e | (w-' '*lowBits)&^w) & highBits
}

// plainEnd is the index of the next quote, backslash or control character of text from i
// on, or its length. It looks at eight bytes at a time.
func plainEnd(text string, i int) int {
	for i+8 <= len(text) {
		w := load64(text, i)
		if m := special(w); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for i < len(text) && text[i] != '"' && text[i] != '\\' && text[i] >= ' ' {
		i++
	}
	return i
}

func load64(text string, i int) uint64 {
	b := text[i : i+8]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}
