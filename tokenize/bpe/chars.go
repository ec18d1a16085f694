package bpe

import (
	"fmt"
	"unicode/utf8"
)

// A charModel converts text to the symbols of a vocabulary of characters, as SentencePiece does.
// A character with a token of its own becomes this token. Other characters become the <0xXX>
// tokens of their bytes or, if these are missing, the unknown token.
//
// Such a model has no pattern, so the whole text is a single word. cutChars finds positions that no
// merge crosses. The parts between these positions can be merged and cached separately.
type charModel struct {
	index [(utf8.MaxRune + 1) >> 8]uint16 // the number of a character's block in ids, by the character's high bits
	ids   []int32                         // blocks of 256 ids; -1 if there is no token
	byte  [256]int32                      // ids of the <0xXX> tokens; -1 if there is no such token
	unk   int32                           // id of the unknown token; -1 if there is no such token
	fuse  bool                            // consecutive unknown characters become one token

	// keepOrder is true if consecutive unknown characters must stay in one part. The reason is
	// that unknown tokens are fused, or that the byte tokens of later characters come before an
	// unknown token.
	keepOrder bool
	// byteMerges is true if a merge contains a byte token or the unknown token. The table of
	// joins does not cover characters that become such tokens.
	byteMerges bool
	// wholeWords is true if a pre-token that is in the vocabulary always becomes a single token
	// (ignore_merges).
	wholeWords bool
}

func (m *model) buildChars(spec *modelSpec) error {
	c := &charModel{ids: make([]int32, 256), unk: -1, fuse: spec.FuseUnk, wholeWords: spec.IgnoreMerges}
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
		return unsupported("vocabulary without an unk_token and without %d of the 256 byte tokens", missing)
	}
	c.keepOrder = missing > 0
	for i := range m.pieces.piece {
		p, id := m.pieces.at(i)
		if r, n := utf8.DecodeRune(p); n == len(p) && n > 0 {
			c.set(r, id)
		}
	}
	m.chars = c
	return nil
}

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

func (c *charModel) symbol(r rune) int32 { return c.ids[int(c.index[r>>8])<<8|int(r&255)] }

// appendSymbols appends the symbols of w. Like the reference engine, it delays an unknown token
// until a later character has a token of its own. So the byte tokens of the characters in between
// come first.
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

// cutChars returns the end of the part that begins at s[i] and can be merged separately.
func (m *model) cutChars(s string, i int) int {
	for {
		i = m.joins.cut(s, i, len(s))
		if i == len(s) || !m.chars.inseparable(s, i) {
			return i
		}
	}
}

// inseparable reports whether the characters before and at s[i] must stay together even though no
// merge joins them.
func (c *charModel) inseparable(s string, i int) bool {
	if !c.byteMerges && !c.keepOrder {
		return false
	}
	a, _ := utf8.DecodeLastRuneInString(s[:i])
	b, _ := utf8.DecodeRuneInString(s[i:])
	if c.byteMerges {
		return c.symbol(a) < 0 || c.symbol(b) < 0
	}
	return c.symbol(a) < 0 && c.symbol(b) < 0
}
