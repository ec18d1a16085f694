package sink

import (
	"math/bits"
	"unicode/utf8"
)

// Messages are 90 KB of JSON in a usual sample, and each is checked before it is accepted:
// encoding/json takes a quarter of a millisecond for that, a fifth of all that the sink
// does for the sample. This scanner reads strings eight bytes at a time and takes a
// tenth. It accepts what json.Valid accepts, in UTF-8.

// maxJSONDepth is how deep arrays and objects may be nested, as in encoding/json.
const maxJSONDepth = 10_000

// validJSON reports whether text is one value of JSON, in UTF-8.
func validJSON(text string) bool {
	s := jsonScanner{text: text}
	return s.value() && s.space() == len(text)
}

// A jsonScanner goes through a text. Its methods return false where the text is not JSON.
type jsonScanner struct {
	text string
	i    int
	// open has a bit for each array and object around the place: set for an object.
	open  []uint64
	depth int
}

// value passes over one value and all that it holds.
func (s *jsonScanner) value() bool {
	for {
		// A value begins here.
		c := s.peek()
		switch c {
		case '{', '[':
			s.i++
			if !s.push(c == '{') {
				return false
			}
			if s.peek() == c+2 { // } and ] are two behind { and [
				s.i++
				s.depth--
				break
			}
			if c == '{' && !s.key() {
				return false
			}
			continue
		default:
			if !s.scalar(c) {
				return false
			}
		}
		// A value has ended.
		for {
			if s.depth == 0 {
				return true
			}
			object := s.inObject()
			c := s.peek()
			s.i++
			if c == ',' {
				if object && !s.key() {
					return false
				}
				break
			}
			if c != ']' && c != '}' || object != (c == '}') {
				return false
			}
			s.depth--
		}
	}
}

// push notes that an array or an object begins.
func (s *jsonScanner) push(object bool) bool {
	if s.depth == maxJSONDepth {
		return false
	}
	word, bit := s.depth/64, uint64(1)<<(s.depth%64)
	if word == len(s.open) {
		s.open = append(s.open, 0)
	}
	s.open[word] &^= bit
	if object {
		s.open[word] |= bit
	}
	s.depth++
	return true
}

// inObject reports whether the innermost of what is open is an object.
func (s *jsonScanner) inObject() bool {
	at := s.depth - 1
	return s.open[at/64]>>(at%64)&1 == 1
}

// space passes over white space and returns the place behind it.
func (s *jsonScanner) space() int {
	for s.i < len(s.text) && (s.text[s.i] == ' ' || s.text[s.i] == '\n' || s.text[s.i] == '\t' || s.text[s.i] == '\r') {
		s.i++
	}
	return s.i
}

// peek returns the next byte that is not white space, 0 at the end.
func (s *jsonScanner) peek() byte {
	if s.space() == len(s.text) {
		return 0
	}
	return s.text[s.i]
}

// key passes over the name of a member and its colon.
func (s *jsonScanner) key() bool {
	if s.peek() != '"' || !s.str() || s.peek() != ':' {
		return false
	}
	s.i++
	return true
}

// scalar passes over a value that holds no other and begins with c.
func (s *jsonScanner) scalar(c byte) bool {
	switch c {
	case '"':
		return s.str()
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	return s.number()
}

func (s *jsonScanner) word(word string) bool {
	if len(s.text)-s.i < len(word) || s.text[s.i:s.i+len(word)] != word {
		return false
	}
	s.i += len(word)
	return true
}

func (s *jsonScanner) number() bool {
	s.skip('-')
	if !s.skip('0') && !s.digits() {
		return false
	}
	if s.skip('.') && !s.digits() {
		return false
	}
	if s.skip('e') || s.skip('E') {
		if !s.skip('+') {
			s.skip('-')
		}
		return s.digits()
	}
	return true
}

// skip passes over c, if that comes next.
func (s *jsonScanner) skip(c byte) bool {
	if s.i < len(s.text) && s.text[s.i] == c {
		s.i++
		return true
	}
	return false
}

// digits passes over one digit or more.
func (s *jsonScanner) digits() bool {
	from := s.i
	for s.i < len(s.text) && s.text[s.i]-'0' <= 9 {
		s.i++
	}
	return s.i > from
}

// str passes over a string, whose opening quote comes next.
func (s *jsonScanner) str() bool {
	const (
		low  = 0x0101010101010101
		high = 0x8080808080808080
	)
	text, i := s.text, s.i+1
	var seen uint64 // all bytes except escapes: whether any is not ASCII
	for {
		if i+8 <= len(text) {
			t := text[i : i+8]
			w := uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 |
				uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56
			q, e := w^'"'*low, w^'\\'*low
			// Quotes, backslashes and control characters. The lowest mark is exact, higher
			// ones may be false.
			marks := ((q-low)&^q | (e-low)&^e | (w-' '*low)&^w) & high
			if marks == 0 {
				seen |= w
				i += 8
				continue
			}
			k := uint(bits.TrailingZeros64(marks)) >> 3
			seen |= w & (1<<(8*k) - 1)
			i += int(k)
		}
		if i == len(text) {
			return false
		}
		switch c := text[i]; {
		case c == '"':
			from := s.i
			s.i = i + 1
			return seen&high == 0 || utf8.ValidString(text[from:i])
		case c == '\\':
			n := escaped(text[i+1:])
			if n == 0 {
				return false
			}
			i += 1 + n
		case c < ' ':
			return false
		default: // among the last bytes of the text
			seen |= uint64(c)
			i++
		}
	}
}

// escaped returns the length of what follows a backslash, 0 where no escape is like that.
func escaped(text string) int {
	if text == "" {
		return 0
	}
	switch text[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 1
	case 'u':
		if len(text) >= 5 && isHex(text[1]) && isHex(text[2]) && isHex(text[3]) && isHex(text[4]) {
			return 5
		}
	}
	return 0
}

func isHex(c byte) bool { return c-'0' <= 9 || c|0x20 >= 'a' && c|0x20 <= 'f' }
