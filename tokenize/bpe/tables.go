package bpe

import (
	"math/bits"
	"math/rand/v2"
)

// A pairTable finds the token to which two adjacent tokens merge. Most pairs in normal text do not
// merge. A filter with one bit per hash value rejects most of these pairs without access to the
// large tables.
type pairTable struct {
	slot   []uint32 // id + 1, or 0 if the slot is free; the length is a power of two
	filter []uint64
	seed   uint64
}

const (
	// 2^21 bits (256 KiB) fit in the second-level CPU cache and reject 9 of 10 pairs that do not
	// merge.
	filterBits = 21
)

// newSeed returns a random seed, so that a hostile vocabulary cannot be built to cause collisions.
func newSeed() uint64 { return rand.Uint64() | 1 }

func newPairTable(n int) pairTable {
	return pairTable{seed: newSeed(), filter: make([]uint64, 1<<(filterBits-6)), slot: make([]uint32, slots(n))}
}

// slots returns the size of an open-addressing table for n entries. The size is a power of two, and
// the entries use at most 3/4 of the table.
func slots(n int) int {
	size := 16
	for 3*size < 4*n {
		size *= 2
	}
	return size
}

func (p *pairTable) hash(key uint64) uint64 {
	hi, lo := bits.Mul64(key^p.seed, 0x9E3779B97F4A7C15)
	return hi ^ lo
}

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

// put adds the pair that merges to token c.
func (p *pairTable) put(tokenMerges []tokenMerge, c int32) {
	h := p.hash(pairKey(tokenMerges[c].left, tokenMerges[c].right))
	f := h >> (64 - filterBits)
	p.filter[f>>6] |= 1 << (f & 63)
	mask := uint64(len(p.slot) - 1)
	i := h & mask
	for p.slot[i] != 0 {
		i = (i + 1) & mask
	}
	p.slot[i] = uint32(c) + 1
}

func (p *pairTable) get(tokenMerges []tokenMerge, a, b int32) (int32, bool) {
	h := p.hash(pairKey(a, b))
	f := h >> (64 - filterBits)
	if p.filter[f>>6]>>(f&63)&1 == 0 {
		return 0, false
	}
	mask := uint64(len(p.slot) - 1)
	for i := h & mask; p.slot[i] != 0; i = (i + 1) & mask {
		c := int32(p.slot[i] - 1)
		if mk := &tokenMerges[c]; mk.left == a && mk.right == b {
			return c, true
		}
	}
	return 0, false
}

// An edgeTable is a trie in one hash table. It maps a node and a byte to the next node.
type edgeTable struct {
	edges []edge // open addressing; the length is a power of two; an edge is free if its field to is 0
	shift uint   // 64 minus the number of bits of an index
	used  int
	seed  uint64
}

type edge struct {
	from uint32 // node<<8 | byte
	to   uint32 // node + 1
}

func newEdgeTable() edgeTable {
	t := edgeTable{seed: newSeed()}
	t.resize(1 << 10)
	return t
}

func (t *edgeTable) slot(from uint32) uint32 {
	hi, lo := bits.Mul64(uint64(from)^t.seed, 0x9E3779B97F4A7C15)
	return uint32((hi ^ lo) >> t.shift)
}

func (t *edgeTable) put(node int32, b byte, to int32) {
	if 4*(t.used+1) > 3*len(t.edges) {
		t.resize(2 * len(t.edges))
	}
	t.used++
	t.insert(edge{uint32(node)<<8 | uint32(b), uint32(to) + 1})
}

func (t *edgeTable) insert(e edge) {
	i := t.slot(e.from)
	for t.edges[i].to != 0 {
		i = (i + 1) & uint32(len(t.edges)-1)
	}
	t.edges[i] = e
}

func (t *edgeTable) resize(n int) {
	old := t.edges
	t.edges = make([]edge, n)
	t.shift = uint(64 - bits.TrailingZeros(uint(n)))
	for _, e := range old {
		if e.to != 0 {
			t.insert(e)
		}
	}
}

func (t *edgeTable) step(node int32, b byte) (int32, bool) {
	from := uint32(node)<<8 | uint32(b)
	for i := t.slot(from); ; i = (i + 1) & uint32(len(t.edges)-1) {
		switch e := t.edges[i]; {
		case e.to == 0:
			return 0, false
		case e.from == from:
			return int32(e.to - 1), true
		}
	}
}

// A wordTable maps each word of up to 16 bytes that is a single token to the token's id.
type wordTable struct {
	slot []wordSlot // the length is a power of two; a slot is free if its field n is 0
	seed uint64
}

type wordSlot struct {
	lo, hi uint64
	id     int32
	n      uint32
}

func newWordTable(n int) wordTable {
	return wordTable{slot: make([]wordSlot, slots(n)), seed: newSeed()}
}

// wordHash hashes a word of n ≤ 16 bytes, given as two little-endian numbers.
func wordHash(lo, hi uint64, n int, seed uint64) uint64 {
	h, l := bits.Mul64(lo^seed, (hi^0xD6E8FEB86659FD93)+uint64(n)*0xA0761D6478BD642F)
	return h ^ l
}

func (w *wordTable) put(lo, hi uint64, n int, id int32) {
	mask := uint64(len(w.slot) - 1)
	i := wordHash(lo, hi, n, w.seed) & mask
	for w.slot[i].n != 0 {
		i = (i + 1) & mask
	}
	w.slot[i] = wordSlot{lo, hi, id, uint32(n)}
}

func (w *wordTable) get(lo, hi uint64, n int, h uint64) (int32, bool) {
	mask := uint64(len(w.slot) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &w.slot[i]
		if s.lo == lo && s.hi == hi && s.n == uint32(n) {
			return s.id, true
		}
		if s.n == 0 {
			return 0, false
		}
	}
}

// loadWord returns s[i:j], which has 1 to 16 bytes, as two little-endian numbers. If s has at least
// 16 bytes from i on, loadWord reads them with two loads of eight bytes.
func loadWord(s string, i, j int) (lo, hi uint64) {
	n := j - i
	if i+16 <= len(s) {
		lo, hi = load8(s[i:]), load8(s[i+8:])
		if n <= 8 {
			return lo & (^uint64(0) >> (64 - 8*uint(n))), 0
		}
		return lo, hi & (^uint64(0) >> (128 - 8*uint(n)))
	}
	for k := min(n, 8) - 1; k >= 0; k-- {
		lo = lo<<8 | uint64(s[i+k])
	}
	for k := n - 1; k >= 8; k-- {
		hi = hi<<8 | uint64(s[i+k])
	}
	return lo, hi
}

func load8(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}
