package bpe

import "unicode/utf8"

// A joinTable records the pairs of adjacent characters that a merge can join. The first merge
// across a position joins a token that ends at the position with a token that begins there. If no
// merge joins two such tokens, the text before and after the position can be merged and cached
// separately.
type joinTable struct {
	bits []uint64 // indexed by the hash of both characters; a false positive only prevents a cut
	// partial records the joins of tokens that end or begin inside a character. It is indexed by
	// the last byte of the first token and the first byte of the second token.
	partial [256][4]uint64
}

// The table has 1<<joinBits bits. With the 100,000 pairs of a large vocabulary, one lookup in
// twenty is a false positive.
const joinBits = 21

func (t *joinTable) hash(a, b rune) uint64 {
	return (uint64(a)<<21 | uint64(b)) * 0x9E3779B97F4A7C15 >> (64 - joinBits)
}

// add records that a merge joins a and b.
func (t *joinTable) add(a, b []byte) {
	if t.bits == nil {
		t.bits = make([]uint64, 1<<(joinBits-6))
	}
	x, _ := utf8.DecodeLastRune(a)
	y, _ := utf8.DecodeRune(b)
	if x == utf8.RuneError || y == utf8.RuneError {
		c, d := a[len(a)-1], b[0]
		t.partial[c][d>>6] |= 1 << (d & 63)
		return
	}
	h := t.hash(x, y)
	t.bits[h>>6] |= 1 << (h & 63)
}

// cut returns the first position after i at which s[i:j] can be cut, or j if there is none. s[i:j]
// must be valid UTF-8.
func (t *joinTable) cut(s string, i, j int) int {
	a, n := utf8.DecodeRuneInString(s[i:j])
	if t.bits == nil { // a vocabulary without merges
		return i + n
	}
	for i += n; i < j; i += n {
		b := rune(s[i])
		n = 1
		switch {
		case b < utf8.RuneSelf:
		case b&0xF0 == 0xE0 && i+3 <= j: // most multibyte characters
			b, n = b&0x0F<<12|rune(s[i+1]&0x3F)<<6|rune(s[i+2]&0x3F), 3
		default:
			b, n = utf8.DecodeRuneInString(s[i:j])
		}
		h := t.hash(a, b)
		c, d := s[i-1], s[i]
		if t.bits[h>>6]>>(h&63)&1 == 0 && t.partial[c][d>>6]>>(d&63)&1 == 0 {
			break
		}
		a = b
	}
	return i
}
