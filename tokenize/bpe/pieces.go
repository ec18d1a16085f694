package bpe

import (
	"hash/maphash"

	"github.com/rollout-rl/rollout/tokenize/internal/textview"
)

// A pieceTable maps the vocabulary's spelling of a token to its id. A byte-level vocabulary spells
// each byte as one printable character.
type pieceTable struct {
	seed  maphash.Seed
	text  []byte
	piece []piece
	// A slot is 0 if it is free. Otherwise it holds 32 bits of the hash, and the index in piece
	// plus 1. The number of slots is a power of two, and at most three quarters are used. The same
	// hash bits determine the position of a slot, so grow does not recompute the hashes.
	slot []uint64
}

type piece struct {
	at uint32
	n  uint32
	id int32
}

func newPieceTable() pieceTable {
	return pieceTable{seed: maphash.MakeSeed(), slot: make([]uint64, 1<<12)}
}

func (p *pieceTable) len() int { return len(p.piece) }

func (p *pieceTable) at(i int) (text []byte, id int32) {
	e := p.piece[i]
	return p.text[e.at : e.at+e.n], e.id
}

// add adds a piece. It returns false if the piece already exists.
func (p *pieceTable) add(text string, id int32) bool {
	if 4*(len(p.piece)+1) > 3*len(p.slot) {
		p.grow()
	}
	h := maphash.String(p.seed, text) >> 32
	mask := uint64(len(p.slot) - 1)
	i := h & mask
	for ; p.slot[i] != 0; i = (i + 1) & mask {
		if p.slot[i]>>32 == h {
			if t, _ := p.at(int(uint32(p.slot[i])) - 1); string(t) == text {
				return false
			}
		}
	}
	p.piece = append(p.piece, piece{uint32(len(p.text)), uint32(len(text)), id})
	p.text = append(p.text, text...)
	p.slot[i] = h<<32 | uint64(len(p.piece))
	return true
}

func (p *pieceTable) grow() {
	old := p.slot
	p.slot = make([]uint64, 2*len(old))
	mask := uint64(len(p.slot) - 1)
	for _, s := range old {
		if s == 0 {
			continue
		}
		i := s >> 32 & mask
		for p.slot[i] != 0 {
			i = (i + 1) & mask
		}
		p.slot[i] = s
	}
}

func (p *pieceTable) get(text string) (int32, bool) {
	return p.id(p.find(maphash.String(p.seed, text), text))
}

func (p *pieceTable) getBytes(text []byte) (int32, bool) {
	return p.id(p.findBytes(text))
}

func (p *pieceTable) id(i int) (int32, bool) {
	if i < 0 {
		return 0, false
	}
	return p.piece[i].id, true
}

func (p *pieceTable) findBytes(text []byte) int {
	return p.find(maphash.Bytes(p.seed, text), textview.Of(text))
}

// findNear is like findBytes, but tries pieces k and k+1 first.
func (p *pieceTable) findNear(text []byte, k int) int {
	for i := k; i < min(k+2, len(p.piece)); i++ {
		if t, _ := p.at(i); string(t) == string(text) {
			return i
		}
	}
	return p.findBytes(text)
}

func (p *pieceTable) find(h uint64, text string) int {
	h >>= 32
	mask := uint64(len(p.slot) - 1)
	for i := h & mask; p.slot[i] != 0; i = (i + 1) & mask {
		if p.slot[i]>>32 == h {
			k := int(uint32(p.slot[i])) - 1
			if t, _ := p.at(k); string(t) == text {
				return k
			}
		}
	}
	return -1
}

// byteRune maps a byte to the byte-level alphabet: printable Latin-1 maps to itself, and the other
// bytes map to U+0100 and up, in order.
func byteRune(b byte) rune {
	switch {
	case b <= 0x20:
		return 0x100 + rune(b)
	case b < 0x7F, b >= 0xA1 && b != 0xAD:
		return rune(b)
	case b <= 0xA0:
		return 0x121 + rune(b-0x7F)
	}
	return 0x143 // 0xAD
}

// appendSpelled appends the spelling of b in the byte-level alphabet.
func appendSpelled(dst, b []byte) []byte {
	for _, c := range b {
		if r := byteRune(c); r < 0x80 {
			dst = append(dst, byte(r))
		} else {
			dst = append(dst, 0xC0|byte(r>>6), 0x80|byte(r&0x3F))
		}
	}
	return dst
}

// alphabet is the inverse of byteRune. It contains -1 for runes that byteRune does not return.
type alphabet [0x144]int16

func newAlphabet() *alphabet {
	var a alphabet
	for i := range a {
		a[i] = -1
	}
	for b := range 256 {
		a[byteRune(byte(b))] = int16(b)
	}
	return &a
}

// appendBytes appends the bytes that piece spells. If a character of piece is not in the alphabet,
// spelled is false, and appendBytes appends the UTF-8 of piece, as the reference decoder does.
func (a *alphabet) appendBytes(dst, piece []byte) (out []byte, spelled bool) {
	start := len(dst)
	for i := 0; i < len(piece); {
		r, n := rune(piece[i]), 1
		if r >= 0x80 {
			if r >= 0xE0 || i+1 >= len(piece) {
				return append(dst[:start], piece...), false
			}
			r, n = r&0x1F<<6|rune(piece[i+1]&0x3F), 2
		}
		if int(r) >= len(a) || a[r] < 0 {
			return append(dst[:start], piece...), false
		}
		dst = append(dst, byte(a[r]))
		i += n
	}
	return dst, true
}
