package bpe

import "unicode/utf8"

// isSpace reports whether the regular expression \s matches r.
func isSpace(r rune) bool {
	switch {
	case r < 0x80:
		return r == ' ' || '\t' <= r && r <= '\r'
	case r < 0x2000:
		return r == 0x85 || r == 0xA0 || r == 0x1680
	}
	return r <= 0x200A || r == 0x2028 || r == 0x2029 || r == 0x202F || r == 0x205F || r == 0x3000
}

// spanSpace returns the end of the white space that begins at s[i].
func spanSpace(s string, i int) int {
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !isSpace(r) {
			break
		}
		i += n
	}
	return i
}
