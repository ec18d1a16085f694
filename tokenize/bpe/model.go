package bpe

import (
	"fmt"
)

// Limits on what a file may ask for. The largest vocabulary known has some
// 260,000 ids, the longest token 128 bytes.
const (
	maxID        = 1<<22 - 1
	maxPieceLen  = 1 << 16
	maxAddedLen  = 1 << 10
	maxAdded     = 1 << 16
	maxFileBytes = 512 << 20
)

// A model is the vocabulary and the merges, in the form that encoding and
// decoding want. Immutable once built.
type model struct {
	// Token id decodes to bytes[off[id]:off[id+1]].
	bytes []byte
	off   []uint32
	flags []uint8

	pieces   pieceTable
	contents map[string]int32 // added tokens

	byteID [256]int32
	pairs  pairTable

	// words and long hold what is one token when it is a whole pre-token: all of
	// the vocabulary with ignore_merges, else what its own merges lead to.
	words wordTable
	long  map[string]int32
}

const (
	flagUsed uint8 = 1 << iota
	flagSpecial
	flagLiteral // spelled as it decodes, not in the byte-level alphabet
)

// A merge joins tokens a and b to c. In a tokenizer.json its rank is its place in
// the list, in a rank file the id of c.
type merge struct {
	a, b, c int32
	rank    uint32
}

// buildBytes fills bytes, off and flags from the pieces and the added tokens.
func (m *model) buildBytes(added []Added) error {
	top := int32(-1)
	for i := range m.pieces.piece {
		top = max(top, m.pieces.piece[i].id)
	}
	for i := range added {
		top = max(top, added[i].ID)
	}
	text := make([][]byte, top+1) // the spelling of each id
	m.flags = make([]uint8, top+1)
	for i := range m.pieces.piece {
		p, id := m.pieces.at(i)
		if m.flags[id] != 0 {
			return fmt.Errorf("%w: tokens %q and %q have the same id %d", ErrCorrupt, text[id], p, id)
		}
		text[id], m.flags[id] = p, flagUsed
	}
	for i := range added {
		a := &added[i]
		if m.flags[a.ID] != 0 && string(text[a.ID]) != a.Content {
			return fmt.Errorf("%w: tokens %q and %q have the same id %d", ErrCorrupt, text[a.ID], a.Content, a.ID)
		}
		text[a.ID] = []byte(a.Content)
		m.flags[a.ID] |= flagUsed
		if a.Special {
			m.flags[a.ID] |= flagSpecial
		}
	}
	alpha := newAlphabet()
	m.off = make([]uint32, top+2)
	m.bytes = make([]byte, 0, len(m.pieces.text))
	for id, t := range text {
		var spelled bool
		if m.bytes, spelled = alpha.appendBytes(m.bytes, t); !spelled {
			m.flags[id] |= flagLiteral
		}
		m.off[id+1] = uint32(len(m.bytes))
	}
	return nil
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

// buildMerges fills the pair tables.
func (m *model) buildMerges(merges []merge) {
	m.pairs = newPairTable(len(merges))
	for _, g := range merges {
		m.pairs.put(g.a, g.b, uint64(g.rank)<<32|uint64(uint32(g.c)))
	}
}

// buildWords fills the whole-word tables. Without ignoreMerges an entry that its
// own bytes do not merge to is left out: some vocabularies have such entries, and
// the reference engine never produces them.
func (m *model) buildWords(ignoreMerges bool) {
	m.words = newWordTable(m.pieces.len())
	m.long = make(map[string]int32)
	alpha := newAlphabet()
	var (
		w   []byte
		ids []int32
		h   mergeHeap
	)
	for i := range m.pieces.piece {
		p, id := m.pieces.at(i)
		var spelled bool
		if w, spelled = alpha.appendBytes(w[:0], p); !spelled || len(w) == 0 {
			continue
		}
		s := stringOf(w)
		if !ignoreMerges && len(w) > 1 {
			if ids = m.appendMerged(ids[:0], s, &h); len(ids) != 1 || ids[0] != id {
				continue
			}
		}
		if len(w) > 16 {
			m.long[string(w)] = id
			continue
		}
		lo, hi := loadWord(s, 0, len(s))
		m.words.put(lo, hi, len(s), id)
	}
}
