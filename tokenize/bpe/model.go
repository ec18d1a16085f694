package bpe

import (
	"fmt"

	"github.com/rollout-rl/rollout/tokenize/internal/textview"
)

// Limits on a tokenizer file. The largest known vocabulary has about 260,000 ids, and the longest
// known token is 128 bytes long.
const (
	maxID        = 1<<22 - 1
	maxPieceLen  = 1 << 16
	maxRankLen   = 1 << 8 // maximum length of a token in a rank file, because every split of the token is looked up
	maxAddedLen  = 1 << 10
	maxAddedText = 1 << 23 // total length of all added tokens
	maxAdded     = 1 << 16
	maxHoles     = 4 // maximum ratio of the highest id to the number of tokens
	maxFileBytes = 256 << 20
)

// A model is the vocabulary and the merges, prepared for encoding and decoding. It is immutable.
type model struct {
	// Id n decodes to bytes[off[n]:off[n+1]].
	bytes []byte
	off   []uint32
	flags []uint8

	// chars, decoder and pieceOf are set for vocabularies of characters and nil for byte-level
	// vocabularies. pieceOf maps each id to its index in pieces.
	chars   *charModel
	decoder *decoder
	pieceOf []int32

	// merged contains added tokens that are also in a byte-level vocabulary and whose content
	// changes when it is normalized. It maps the id of such a token to its bytes in the vocabulary.
	merged map[int32][]byte

	pieces   pieceTable
	contents map[string]int32 // added tokens

	byteID      [256]int32
	tokenMerges []tokenMerge // by id
	pairs       pairTable
	prefixes    prefixTable
	joins       joinTable

	// words and long hold the tokens that match whole pre-tokens. With ignore_merges, they hold the
	// whole vocabulary. Otherwise they hold only the tokens that merging makes from their own text.
	words wordTable
	long  map[string]int32
	// parts is true if words has tokens that merging never makes. Such tokens match only whole
	// pre-tokens.
	parts bool
}

const (
	flagUsed uint8 = 1 << iota
	flagSpecial
	flagLiteral // spelled as its plain bytes, not in the byte-level alphabet
	flagByte    // <0xXX>, a byte in a vocabulary of characters
	flagSkip    // DecodeOptions.SkipSpecial skips the token
	flagAdded
)

// A merge joins tokens a and b into c. Its rank is its index in tokenizer.json, or c in a rank
// file.
type merge struct {
	a, b, c int32
	rank    uint32
}

// buildBytes fills bytes, off and flags from the pieces and the added tokens. The parameter spelled
// holds the text to which each added token decodes.
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
	if n := m.pieces.len() + len(added); int(top) > maxHoles*n+1<<16 { // limited because tables have one entry per id
		return unsupported("ids as large as %d for only %d tokens", top, n)
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
		if special[spelled[i]] { // the reference engine checks the spelling
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

// spelling returns the vocabulary's spelling of id, which must be in the vocabulary.
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

// text returns the text of id for merging: the bytes of its piece, or the piece itself in a
// vocabulary of characters. id must be in the vocabulary.
func (m *model) text(id int32) []byte {
	if m.chars != nil {
		return m.spelling(id)
	}
	if b, ok := m.merged[id]; ok {
		return b
	}
	return m.bytes[m.off[id]:m.off[id+1]]
}

// buildByteIDs finds the token for each byte. It rejects a vocabulary that lacks such a token,
// because some text would have no encoding.
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

// buildWords fills the fields words, long and parts. The parameter all is true if the file sets
// ignore_merges. Without ignore_merges, the tables contain only tokens to which their own bytes
// merge, because the reference engine never produces other tokens.
func (m *model) buildWords(all bool) {
	m.words = newWordTable(m.pieces.len())
	m.long = make(map[string]int32)
	alpha := newAlphabet()
	var w []byte
	for i := range m.pieces.piece {
		id := m.pieces.piece[i].id
		if k := &m.tokenMerges[id]; k.rank == neverMade || k.nonText {
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
		lo, hi := loadWord(textview.Of(w), 0, len(w))
		m.words.put(lo, hi, len(w), id)
	}
}

// appendWord appends the text that piece i matches in a pre-token. ok is false if the piece cannot
// occur in a pre-token.
func (m *model) appendWord(dst []byte, i int, alpha *alphabet) (_ []byte, ok bool) {
	p, _ := m.pieces.at(i)
	if m.chars != nil {
		return append(dst, p...), len(p) > 0
	}
	dst, ok = alpha.appendBytes(dst, p)
	return dst, ok && len(p) > 0
}
