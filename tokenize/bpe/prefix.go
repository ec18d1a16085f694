package bpe

import "math/bits"

// A prefixTable finds the longest token that is a prefix of a text. It is a trie in one hash table.
// The node of a token has the token's id; other nodes have higher numbers.
type prefixTable struct {
	root   [256]int32
	edges  []prefixEdge // open addressing, length a power of two; free if to is 0
	shift  uint         // 64 minus the number of bits of an index
	used   int
	tokens int32 // all ids are lower
	nodes  int32
	seed   uint64
}

type prefixEdge struct {
	from uint32 // node<<8 | byte
	to   uint32 // node + 1
}

// maxNodes is the range of a node in prefixEdge.from. Real vocabularies have less than a million.
const maxNodes = 1 << 24

// newPrefixTable makes the table of symbols and made, the tokens that merging makes, by ascending
// size. It also sets their longest prefixes. The prefixes of a token come before it, so a node on
// its path never becomes a token later.
func newPrefixTable(m *model, symbols, made []int32) (prefixTable, error) {
	p := prefixTable{tokens: int32(len(m.tokenMerges)), nodes: int32(len(m.tokenMerges)), seed: newSeed()}
	p.resize(1 << 10)
	for b := range p.root {
		p.root[b] = -1
	}
	for _, id := range symbols {
		text := m.text(id)
		if len(text) == 1 {
			p.root[text[0]] = id
			continue
		}
		node := &p.root[text[0]]
		if *node < 0 {
			*node = p.nodes
			p.nodes++
		}
		if err := p.add(m.tokenMerges, *node, text[1:], id); err != nil {
			return p, err
		}
	}
	for _, id := range made {
		c := &m.tokenMerges[id]
		c.prefix = c.left
		if err := p.add(m.tokenMerges, c.left, m.text(c.right), id); err != nil {
			return p, err
		}
	}
	return p, nil
}

// add adds the path from a node to token id; text is the bytes on that path.
func (p *prefixTable) add(tokenMerges []tokenMerge, node int32, text []byte, id int32) error {
	last := len(text) - 1
	for _, b := range text[:last] {
		next, ok := p.step(node, b)
		switch {
		case !ok && p.nodes == maxNodes:
			return unsupported("vocabulary with more than %d different token prefixes", maxNodes)
		case !ok:
			next = p.nodes
			p.nodes++
			p.put(node, b, next)
		case next < p.tokens:
			tokenMerges[id].prefix = next
		}
		node = next
	}
	p.put(node, text[last], id)
	return nil
}

func (p *prefixTable) slot(from uint32) uint32 {
	hi, lo := bits.Mul64(uint64(from)^p.seed, 0x9E3779B97F4A7C15)
	return uint32((hi ^ lo) >> p.shift)
}

func (p *prefixTable) put(node int32, b byte, to int32) {
	if 4*(p.used+1) > 3*len(p.edges) {
		p.resize(2 * len(p.edges))
	}
	p.used++
	p.insert(prefixEdge{uint32(node)<<8 | uint32(b), uint32(to) + 1})
}

func (p *prefixTable) insert(e prefixEdge) {
	i := p.slot(e.from)
	for p.edges[i].to != 0 {
		i = (i + 1) & uint32(len(p.edges)-1)
	}
	p.edges[i] = e
}

func (p *prefixTable) resize(n int) {
	old := p.edges
	p.edges = make([]prefixEdge, n)
	p.shift = uint(64 - bits.TrailingZeros(uint(n)))
	for _, e := range old {
		if e.to != 0 {
			p.insert(e)
		}
	}
}

func (p *prefixTable) step(node int32, b byte) (int32, bool) {
	from := uint32(node)<<8 | uint32(b)
	for i := p.slot(from); ; i = (i + 1) & uint32(len(p.edges)-1) {
		switch e := p.edges[i]; {
		case e.to == 0:
			return 0, false
		case e.from == from:
			return int32(e.to - 1), true
		}
	}
}

// longest returns the longest token that is a prefix of s, or -1, and the number of bytes of s that
// the result depends on. That number can be one more than len(s).
func (p *prefixTable) longest(s string) (tok int32, depends int) {
	node, best := p.root[s[0]], int32(-1)
	if node < 0 {
		return -1, 1
	}
	if node < p.tokens {
		best = node
	}
	i := 1
	for ; i < len(s); i++ {
		next, ok := p.step(node, s[i])
		if !ok {
			break
		}
		if next < p.tokens {
			best = next
		}
		node = next
	}
	return best, i + 1
}
