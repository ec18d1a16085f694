package strictjson

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Strings are read eight bytes at a time. A string without escapes is returned as a substring of
// the text. A string with escapes is built in s.scratch and then appended to s.unescaped.

// Text reads a string and returns its unescaped text.
func (s *Scanner) Text() string {
	if s.space() != '"' {
		s.Mismatch("a string")
		return ""
	}
	if s.again() {
		return s.longText
	}
	from := s.i + 1
	i := PlainEnd(s.text, from)
	var text string
	if i < len(s.text) && s.text[i] == '"' {
		s.i = i + 1
		text = s.text[from:i]
	} else {
		text = s.unescape(from, i)
	}
	if s.err == nil && s.i-from >= longString {
		s.long, s.longText = s.text[from-1:s.i], text
	}
	return text
}

// longString is the minimum length, in bytes, of a string that Scanner.long keeps.
const longString = 64

// again reports whether the next string equals the last long string, and if so, reads it.
func (s *Scanner) again() bool {
	if s.long == "" || !strings.HasPrefix(s.text[s.i:], s.long) {
		return false
	}
	s.i += len(s.long)
	return true
}

// skipText reads a string and discards it. text[s.i] must be the opening quote.
func (s *Scanner) skipText() {
	if s.again() {
		return
	}
	text, i := s.text, s.i+1
	for {
		// Skip two-character escapes, the most common kind, without decoding them.
		for i+8 <= len(text) {
			m := special(load64(text, i))
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
			if text[i] != '\\' || i+1 == len(text) || simpleEscapes[text[i+1]] == 0 {
				break
			}
			i += 2
		}
		i = PlainEnd(text, i)
		if i >= len(text) {
			s.i = len(text)
			s.Expected("the end of a string")
			return
		}
		switch text[i] {
		case '"':
			s.i = i + 1
			return
		case '\\':
			_, n := s.escape(i)
			if n == 0 {
				return
			}
			i += n
		default:
			s.i = i
			s.Fail("a control character in a string")
			return
		}
	}
}

// unescape reads a string whose text begins at from and has its first special byte at i.
func (s *Scanner) unescape(from, i int) string {
	text, n := s.text, i-from
	s.grow(n)
	copy(s.scratch, text[from:i])
	for i < len(text) {
		s.grow(n + 8 + utf8.UTFMax) // an iteration copies up to seven bytes and then unescapes one character
		if i+8 <= len(text) {
			w := load64(text, i)
			binary.LittleEndian.PutUint64(s.scratch[n:], w) // later iterations overwrite the special bytes
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
			s.Fail("a control character in a string")
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
			r, size := s.escape(i)
			if size == 0 {
				return ""
			}
			n += utf8.EncodeRune(s.scratch[n:], r)
			i += size
		}
	}
	s.i = len(text)
	s.Expected("the end of a string")
	return ""
}

// simpleEscapes maps the second character of a two-character escape to its value.
var simpleEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// grow makes scratch at least n bytes long.
func (s *Scanner) grow(n int) {
	if n > len(s.scratch) {
		s.scratch = append(s.scratch, make([]byte, max(n-len(s.scratch), len(s.scratch), 1<<7))...)
	}
}

// keep appends b to unescaped and returns it as a string. The strings from earlier calls remain
// valid.
func (s *Scanner) keep(b []byte) string {
	if s.unescaped.Cap()-s.unescaped.Len() < len(b) {
		const least, most = 4 << 10, 16 << 10
		size := min(max(least, 2*s.unescaped.Cap()), most)
		size = max(len(b), min(size, len(b)+len(s.text)-s.i)) // the rest of the text cannot need more memory
		s.unescaped.Reset()
		s.unescaped.Grow(size)
	}
	start := s.unescaped.Len()
	s.unescaped.Write(b)
	return s.unescaped.String()[start:]
}

// escape decodes the escape sequence at text[i]. It returns the character and the length of the
// sequence. If the sequence is invalid, it sets an error and returns length 0.
func (s *Scanner) escape(i int) (r rune, n int) {
	text := s.text[i:]
	if len(text) >= 2 {
		if c := simpleEscapes[text[1]]; c != 0 {
			return rune(c), 2
		}
		if text[1] == 'u' {
			r = hex4(text[2:])
		} else {
			r = -1
		}
	}
	switch {
	case len(text) < 2, r < 0:
		s.i = i
		s.Fail("an unknown escape in a string")
		return 0, 0
	case !utf16.IsSurrogate(r):
		return r, 6
	}
	if rest := text[6:]; len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(rest[2:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	if !s.opts.HalfPairs {
		s.i = i
		s.ambiguous(text[:6] + ": an unpaired surrogate")
		return 0, 0
	}
	return utf8.RuneError, 6
}

// hex4 returns the value of the four hexadecimal digits at the start of text, or -1.
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

// special returns a word with 0x80 in the bytes of w that are special in a string: quotes,
// backslashes and control characters. Only the lowest 0x80 is reliable.
func special(w uint64) uint64 {
	q := w ^ '"'*lowBits
	e := w ^ '\\'*lowBits
	return ((q-lowBits)&^q | (e-lowBits)&^e | (w-' '*lowBits)&^w) & highBits
}

// PlainEnd returns the index of the first quote, backslash or control character at or after
// text[i], or the length of the text. A JSON encoder must escape these bytes.
func PlainEnd(text string, i int) int {
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

// AppendText appends a text as a JSON string. It escapes as little as possible, as Python's json module
// does with ensure_ascii=False. Invalid UTF-8 becomes U+FFFD.
func AppendText(dst []byte, text string) []byte {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	const hex = "0123456789abcdef"
	dst = append(slices.Grow(dst, len(text)+2), '"')
	for {
		i := PlainEnd(text, 0)
		dst = append(dst, text[:i]...)
		if i == len(text) {
			return append(dst, '"')
		}
		switch c := text[i]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		text = text[i+1:]
	}
}

func load64(text string, i int) uint64 {
	b := text[i : i+8]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}
