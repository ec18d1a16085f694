package bpe

// DeepSeek's three patterns in one pass: a segment is what the first two leave
// whole, and the third is matched inside it, so that (?!\S) sees the end of the
// segment and not of the text.

// segmentDeepSeek returns the end of the segment at s[i]: up to three numbers, a
// CJK run, or all up to the next of these.
func segmentDeepSeek(s string, i int) int {
	c, n := classAt(s, i)
	switch {
	case c&number != 0:
		return spanNumbers(s, i, 3)
	case c&cjk != 0:
		return spanAny(s, i+n, cjk)
	}
	return spanNone(s, i+n, number|cjk)
}

// splitDeepSeek is the third pattern at s[i], where s ends with its segment. What
// no alternative matches stays together up to the next match.
func splitDeepSeek(s string, i int) int {
	if end, ok := matchDeepSeek(s, i); ok {
		return end
	}
	for j := i; ; {
		_, n := classAt(s, j)
		if j += n; j >= len(s) {
			return j
		}
		if _, ok := matchDeepSeek(s, j); ok {
			return j
		}
	}
}

func matchDeepSeek(s string, i int) (end int, ok bool) {
	b := s[i]
	c, n := classAt(s, i)
	if b < 0x80 && c&symbol != 0 && i+1 < len(s) && isLatin(s[i+1]) {
		j := i + 2
		for j < len(s) && isLatin(s[j]) {
			j++
		}
		return j, true
	}
	if c&mark != 0 { // a mark before letters is a prefix or one of them, all the same
		return spanAny(s, i+n, mark), true
	}
	if b != '\r' && b != '\n' && c&symbol == 0 && i+n < len(s) {
		if c2, n2 := classAt(s, i+n); c2&mark != 0 {
			return spanAny(s, i+n+n2, mark), true
		}
	}
	if b == ' ' && i+1 < len(s) {
		if c2, n2 := classAt(s, i+1); c2&symbol != 0 {
			return spanNewlines(s, spanAny(s, i+1+n2, symbol)), true
		}
	}
	if c&symbol != 0 {
		return spanNewlines(s, spanAny(s, i+n, symbol)), true
	}
	if c&space != 0 {
		return splitSpace(s, i), true
	}
	return i, false
}

func isLatin(b byte) bool {
	b |= 0x20
	return 'a' <= b && b <= 'z'
}
