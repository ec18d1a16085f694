package bpe

import (
	"fmt"
)

// Limits on what a file may ask for. The largest vocabulary known has some
// 260,000 ids, the longest token 128 bytes.
const (
	maxID        = 1<<22 - 1
	maxPieceLen  = 1 << 16
	maxRankLen   = 1 << 8 // of a token in a rank file, of which every cut is looked up
	maxAddedLen  = 1 << 10
	maxAddedText = 1 << 23 // of all added tokens together
	maxAdded     = 1 << 16
	maxHoles     = 4 // ids for each token
	maxFileBytes = 256 << 20
)

// A model is the vocabulary and the merges, in the form that encoding and
// decoding want. Immutable once built.
type model struct {
	// Token id decodes to bytes[off[id]:off[id+1]].
	bytes []byte
	off   []uint32
	flags []uint8

	// chars and decoder are those of a vocabulary that spells characters, pieceOf
	// the place of each id in pieces; nil in byte-level ones.
	chars   *charModel
	decoder *decoder
	pieceOf []int32

	// merged are the bytes of tokens of a byte-level vocabulary that are added and
	// normalized, so that they decode to others.
	merged map[int32][]byte

	pieces   pieceTable
	contents map[string]int32 // added tokens

	byteID   [256]int32
	makings  []making // by id
	pairs    pairTable
	prefixes prefixTable
	joins    joinTable

	// words and long hold what is one token when it is a whole pre-token: all of
	// the vocabulary with ignore_merges, else what its own merges lead to.
	words wordTable
	long  map[string]int32
	// parts says that words holds tokens that merging does not make, which a part of
	// a pre-token is not.
	parts bool
}

const (
	flagUsed uint8 = 1 << iota
	flagSpecial
	flagLiteral // spelled as it decodes, not in the byte-level alphabet
	flagByte    // <0xXX>, a byte of a vocabulary of characters
	flagSkip    // left out by DecodeOptions.SkipSpecial
	flagAdded   // an added token
)

// A merge joins tokens a and b to c. In a tokenizer.json its rank is its place in
// the list, in a rank file the id of c.
type merge struct {
	a, b, c int32
	rank    uint32
}

// buildBytes fills bytes, off and flags from the pieces and the added tokens;
// spelled are the contents of those, normalized, which is what decoding sees.
func (m *model) buildBytes(added []Added, spelled []string) error {
	top := int32(-1)
	for i := range m.pieces.piece {
		top = max(top, m.pieces.piece[i].id)
	}
	special := make(map[string]bool)
	for i := range added {
		top = max(top, added[i].ID)
		if added[i].Special {
			special[added[i].Content] = true
		}
	}
	if n := m.pieces.len() + len(added); int(top) > maxHoles*n+1<<16 { // tables have a place for each id
		return unsupported("ids up to %d for %d tokens", top, n)
	}
	m.flags = make([]uint8, top+1)
	pieceOf := make([]int32, top+1)
	for i := range m.pieces.piece {
		p, id := m.pieces.at(i)
		if m.flags[id] != 0 {
			other, _ := m.pieces.at(int(pieceOf[id]))
			return fmt.Errorf("%w: tokens %q and %q have the same id %d", ErrCorrupt, other, p, id)
		}
		pieceOf[id], m.flags[id] = int32(i), flagUsed
	}
	if m.decoder != nil {
		m.pieceOf = pieceOf
	}
	alpha := newAlphabet()
	m.merged = make(map[int32][]byte)
	addedText := make(map[int32]string, len(added))
	for i := range added {
		a := &added[i]
		if other, ok := addedText[a.ID]; ok {
			return fmt.Errorf("%w: added tokens %q and %q have the same id %d", ErrCorrupt, other, a.Content, a.ID)
		}
		if m.flags[a.ID] != 0 {
			if p, _ := m.pieces.at(int(pieceOf[a.ID])); string(p) != a.Content {
				return fmt.Errorf("%w: tokens %q and %q have the same id %d", ErrCorrupt, p, a.Content, a.ID)
			}
			if spelled[i] != a.Content {
				m.merged[a.ID], _ = alpha.appendBytes(nil, []byte(a.Content))
			}
		}
		addedText[a.ID] = spelled[i]
		m.flags[a.ID] |= flagUsed | flagAdded
		if a.Special {
			m.flags[a.ID] |= flagSpecial
		}
		if special[spelled[i]] { // the reference engine asks for the spelling
			m.flags[a.ID] |= flagSkip
		}
	}
	m.off = make([]uint32, top+2)
	m.bytes = make([]byte, 0, len(m.pieces.text))
	for id := range pieceOf {
		var t []byte
		if m.flags[id]&flagAdded != 0 {
			t = []byte(addedText[int32(id)])
		} else if m.flags[id] != 0 {
			t, _ = m.pieces.at(int(pieceOf[id]))
		}
		if m.decoder != nil {
			var isByte bool
			if m.bytes, isByte = m.decoder.appendToken(m.bytes, string(t)); isByte {
				m.flags[id] |= flagByte
			}
		} else {
			var spelled bool
			if m.bytes, spelled = alpha.appendBytes(m.bytes, t); !spelled {
				m.flags[id] |= flagLiteral
			}
		}
		if len(m.bytes) > len(m.pieces.text)+maxDecodedText {
			return unsupported("decoder that makes the vocabulary more than %d bytes longer", maxDecodedText)
		}
		m.off[id+1] = uint32(len(m.bytes))
	}
	return nil
}

// spelling returns how the vocabulary spells id, which is not an added token
// outside of it.
func (m *model) spelling(id int32) []byte {
	if m.decoder != nil {
		p, _ := m.pieces.at(int(m.pieceOf[id]))
		return p
	}
	b := m.bytes[m.off[id]:m.off[id+1]]
	if m.flags[id]&flagLiteral != 0 {
		return b
	}
	return appendSpelled(nil, b)
}

// text returns what merging sees of id, which is not an added token outside of the
// vocabulary: the bytes that its piece spells, or, in vocabularies of characters, the
// piece.
func (m *model) text(id int32) []byte {
	if m.chars != nil {
		return m.spelling(id)
	}
	if b, ok := m.merged[id]; ok {
		return b
	}
	return m.bytes[m.off[id]:m.off[id+1]]
}

// buildByteIDs finds the token of each byte. Without all of them some text would
// have no encoding.
func (m *model) buildByteIDs() error {
	var buf []byte
	for b := range 256 {
		buf = appendSpelled(buf[:0], []byte{byte(b)})
		id, ok := m.pieces.getBytes(buf)
		if !ok {
			return fmt.Errorf("%w: vocabulary without a token for byte 0x%02X", ErrUnsupported, b)
		}
		m.byteID[b] = id
	}
	return nil
}

// buildWords fills the whole-word tables: with all, which ignore_merges asks for, of
// the whole vocabulary, else of what its own bytes merge to. Some vocabularies have
// other entries, and the reference engine never produces them.
func (m *model) buildWords(all bool) {
	m.words = newWordTable(m.pieces.len())
	m.long = make(map[string]int32)
	alpha := newAlphabet()
	var w []byte
	for i := range m.pieces.piece {
		id := m.pieces.piece[i].id
		if k := &m.makings[id]; k.rank == unmade || k.odd {
			if !all {
				continue
			}
			m.parts = true
		}
		var ok bool
		if w, ok = m.appendWord(w[:0], i, alpha); !ok {
			continue
		}
		if len(w) > 16 {
			m.long[string(w)] = id
			continue
		}
		lo, hi := loadWord(stringOf(w), 0, len(w))
		m.words.put(lo, hi, len(w), id)
	}
}

// appendWord appends the text of piece i as it stands in a pre-token; ok is false
// where it can stand in none.
func (m *model) appendWord(dst []byte, i int, alpha *alphabet) (_ []byte, ok bool) {
	p, _ := m.pieces.at(i)
	if m.chars != nil {
		return append(dst, p...), len(p) > 0
	}
	dst, ok = alpha.appendBytes(dst, p)
	return dst, ok && len(p) > 0
}
