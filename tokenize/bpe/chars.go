package bpe

import (
	"fmt"
	"unicode/utf8"
)

// A charModel makes the symbols of a vocabulary that spells characters, as those of
// SentencePiece do: the token of each character, or else the <0xXX> tokens of its
// bytes, or else the unknown token.
//
// Such a model has no pattern: a text is one word. cut finds the places that no
// merge crosses, so that what is between them can be merged by itself and be
// remembered. A merge of A and B first crosses a place between two characters when
// A ends with the one and B begins with the other; joins has all these pairs.
type charModel struct {
	index [(utf8.MaxRune + 1) >> 8]uint16 // block of ids by the high bits of a character
	ids   []int32                         // blocks of 256; -1 where there is no token
	byte  [256]int32                      // the <0xXX> tokens, -1 where there is none
	unk   int32                           // -1 where there is none
	fuse  bool                            // unknown characters in a row are one token

	joins []uint64 // a bit per hash of a pair; a false one costs a cut, no more
	shift uint8    // 64 minus the number of bits of the hash

	// order says that unknown characters in a row must stay together: the unknown
	// token is fused, or put after the bytes of those that follow.
	order bool
	// merged says that byte tokens or the unknown token merge, so that joins does
	// not speak for the characters they stand for.
	merged bool
	// whole says that a pre-token that is in the vocabulary is that token
	// (ignore_merges).
	whole bool
}

// buildChars makes the symbols and the cuts.
func (m *model) buildChars(spec *modelSpec, merges []merge) error {
	c := &charModel{ids: make([]int32, 256), unk: -1, fuse: spec.FuseUnk, whole: spec.IgnoreMerges}
	for i := range c.ids {
		c.ids[i] = -1
	}
	missing := 0
	for b := range c.byte {
		c.byte[b] = -1
		if id, ok := m.pieces.get(fmt.Sprintf("<0x%02X>", b)); ok && spec.ByteFallback {
			c.byte[b] = id
		} else {
			missing++
		}
	}
	if spec.UnkToken != nil && *spec.UnkToken != "" {
		if id, ok := m.pieces.get(*spec.UnkToken); ok {
			c.unk = id
		}
	}
	if missing > 0 && c.unk < 0 {
		return unsupported("vocabulary without a token for what it does not know: %d of 256 bytes are missing, and there is no unk_token", missing)
	}
	c.order = missing > 0
	for i := range m.pieces.piece {
		p, id := m.pieces.at(i)
		if r, n := utf8.DecodeRune(p); n == len(p) && n > 0 {
			c.set(r, id)
		}
	}
	c.buildJoins(m, merges)
	m.chars = c
	return nil
}

// set makes id the token of r.
func (c *charModel) set(r rune, id int32) {
	block := int(c.index[r>>8])
	if block == 0 {
		block = len(c.ids) >> 8
		c.index[r>>8] = uint16(block)
		for range 256 {
			c.ids = append(c.ids, -1)
		}
	}
	c.ids[block<<8|int(r&255)] = id
}

// buildJoins fills joins. Merges share most of their pairs: two bits for each merge
// leave one in thirty pairs falsely joined in Gemma 3.
func (c *charModel) buildJoins(m *model, merges []merge) {
	odd := make(map[int32]bool, 257)
	odd[c.unk] = true
	for _, id := range c.byte {
		odd[id] = true
	}
	delete(odd, -1)
	top := len(m.off) - 1
	type ends struct{ first, last rune }
	chars := make([]ends, top) // of each token
	unusual := make([]bool, top)
	for i := range m.pieces.piece {
		p, id := m.pieces.at(i)
		first, _ := utf8.DecodeRune(p)
		last, _ := utf8.DecodeLastRune(p)
		chars[id] = ends{first, last}
		unusual[id] = odd[id]
	}
	bits := uint8(6)
	for bits < 20 && 1<<bits < 2*len(merges) {
		bits++
	}
	c.shift = 64 - bits
	c.joins = make([]uint64, 1<<(bits-6))
	for _, g := range merges {
		c.merged = c.merged || unusual[g.a] || unusual[g.b]
		h := c.hash(chars[g.a].last, chars[g.b].first)
		c.joins[h>>6] |= 1 << (h & 63)
	}
}

func (c *charModel) hash(a, b rune) uint64 {
	return (uint64(a)<<21 | uint64(b)) * 0x9E3779B97F4A7C15 >> c.shift
}

// symbol returns the token of r, or -1.
func (c *charModel) symbol(r rune) int32 { return c.ids[int(c.index[r>>8])<<8|int(r&255)] }

// appendSymbols appends the symbols of w. An unknown token waits for the next
// character that has a token, and the bytes of others come before it, as in the
// reference engine.
func (c *charModel) appendSymbols(dst []int32, w string) []int32 {
	waits := false
	for i := 0; i < len(w); {
		r, n := rune(w[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(w[i:])
		}
		id := c.symbol(r)
		switch {
		case id >= 0:
			if waits {
				dst, waits = append(dst, c.unk), false
			}
			dst = append(dst, id)
		case c.hasBytes(w[i : i+n]):
			for k := range n {
				dst = append(dst, c.byte[w[i+k]])
			}
		default:
			if waits && !c.fuse {
				dst = append(dst, c.unk)
			}
			waits = true
		}
		i += n
	}
	if waits {
		dst = append(dst, c.unk)
	}
	return dst
}

func (c *charModel) hasBytes(s string) bool {
	for i := range len(s) {
		if c.byte[s[i]] < 0 {
			return false
		}
	}
	return true
}

// cut returns the end of what begins at s[i] and merges by itself. It is a splitter.
func (c *charModel) cut(s string, i int) int {
	a, n := utf8.DecodeRuneInString(s[i:])
	i += n
	for i < len(s) {
		b, n := rune(s[i]), 1
		if b >= utf8.RuneSelf {
			b, n = utf8.DecodeRuneInString(s[i:])
		}
		h := c.hash(a, b)
		if c.joins[h>>6]>>(h&63)&1 == 0 && !c.tied(a, b) {
			return i
		}
		a = b
		i += n
	}
	return i
}

// tied reports whether a and b stay together although no merge joins them.
func (c *charModel) tied(a, b rune) bool {
	switch {
	case c.merged:
		return c.symbol(a) < 0 || c.symbol(b) < 0
	case c.order:
		return c.symbol(a) < 0 && c.symbol(b) < 0
	}
	return false
}
