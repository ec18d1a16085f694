package bpe

import "unicode/utf8"

// Each maximal subpart of invalid UTF-8 is replaced with one U+FFFD, as with Python's
// errors="replace" and Rust's from_utf8_lossy. A maximal subpart is the longest run of bytes that
// could begin a character. In contrast, strings.ToValidUTF8 inserts one U+FFFD per run of invalid
// bytes, and a range loop yields one per byte.

const replacement = "\uFFFD"

// appendLossy appends s to dst with invalid UTF-8 replaced.
func appendLossy[S []byte | string](dst []byte, s S) []byte {
	start := 0
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			i++
			continue
		}
		n, ok := subpart(s[i:])
		if !ok {
			dst = append(append(dst, s[start:i]...), replacement...)
			start = i + n
		}
		i += n
	}
	return append(dst, s[start:]...)
}

// subpart returns the length of the character at the start of s, and whether the character is
// valid. If it is not valid, n is the length of its maximal subpart. s must not be empty.
func subpart[S []byte | string](s S) (n int, ok bool) {
	need, lo, hi := 0, byte(0x80), byte(0xBF)
	switch c := s[0]; {
	case c < 0x80:
		return 1, true
	case c < 0xC2, c > 0xF4:
		return 1, false
	case c < 0xE0:
		need = 1
	case c < 0xF0:
		need = 2
		switch c {
		case 0xE0:
			lo = 0xA0
		case 0xED:
			hi = 0x9F
		}
	default:
		need = 3
		switch c {
		case 0xF0:
			lo = 0x90
		case 0xF4:
			hi = 0x8F
		}
	}
	n = 1
	for ; need > 0 && n < len(s) && lo <= s[n] && s[n] <= hi; need-- {
		n++
		lo, hi = 0x80, 0xBF
	}
	return n, need == 0
}
