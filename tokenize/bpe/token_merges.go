package bpe

import "unicode/utf8"

// A tokenMerge describes how merging makes a token. Whatever text surrounds a token, the token is
// always made by the merges of its own text. Therefore only one merge per token is ever used, even
// if a file lists several. If merging a token's text does not make the token, no result contains
// the token.
type tokenMerge struct {
	left, right int32  // the two tokens that merge to this token
	rank        uint32 // rank of the merge plus 1; 0 for a symbol; neverMade if merging never makes the token
	size        uint32 // length in bytes
	prefix      int32  // the longest other token that is a prefix of the token, or -1
	// outOfOrder is true if the merge that makes the token, or a merge inside the token, does not
	// have a higher rank than the merges before it. Llama 3 has a few dozen such tokens; most
	// vocabularies have none.
	outOfOrder bool
	// nonText is true if the token is or contains a byte token or the unknown token of a vocabulary
	// of characters. The text of such a token differs from its spelling.
	nonText bool
}

// neverMade is the rank of a token that merging never makes.
const neverMade = ^uint32(0)

// buildMerges finds the merge of each token. It starts with the shortest tokens, because compatible
// needs the merges of a token's parts.
func (m *model) buildMerges(merges []merge) error {
	merges = lastOfEqual(merges, len(m.flags))
	m.tokenMerges = make([]tokenMerge, len(m.flags))
	for id := range m.tokenMerges {
		m.tokenMerges[id] = tokenMerge{rank: neverMade, prefix: -1}
	}
	for i := range m.pieces.piece {
		_, id := m.pieces.at(i)
		m.tokenMerges[id].size = uint32(len(m.text(id)))
	}
	symbols := m.markSymbols()
	m.pairs = newPairTable(len(m.flags))
	var s mergeScratch
	made := make([]int32, 0, len(m.flags))
	for _, g := range m.bySize(merges) {
		a, b, c := &m.tokenMerges[g.a], &m.tokenMerges[g.b], &m.tokenMerges[g.c]
		nonText := a.nonText || b.nonText || c.nonText
		if c.rank != neverMade && !nonText || a.rank == neverMade || b.rank == neverMade || !m.compatible(g.a, g.b, &s) {
			continue
		}
		if c.rank != neverMade {
			return unsupported("token %q, which merges can make both from its characters and from byte or unknown tokens", m.spelling(g.c))
		}
		c.left, c.right, c.rank = g.a, g.b, g.rank+1
		c.outOfOrder = a.outOfOrder || b.outOfOrder || c.rank <= a.rank || c.rank <= b.rank
		c.nonText = nonText
		m.pairs.put(m.tokenMerges, g.c)
		m.joins.add(m.text(g.a), m.text(g.b))
		if nonText {
			m.chars.byteMerges = true
		}
		made = append(made, g.c)
	}
	var err error
	m.prefixes, err = newPrefixTable(m, symbols, made)
	return err
}

// markSymbols marks the tokens from which merging starts. It returns the marked tokens whose
// spelling is their text.
func (m *model) markSymbols() []int32 {
	var symbols []int32
	if m.chars == nil {
		symbols = m.byteID[:]
	} else {
		for i := range m.pieces.piece {
			if p, id := m.pieces.at(i); utf8.RuneCount(p) == 1 {
				symbols = append(symbols, id)
			}
		}
		for _, id := range append(m.chars.byte[:], m.chars.unk) {
			if id >= 0 && m.tokenMerges[id].rank != 0 {
				m.tokenMerges[id].rank, m.tokenMerges[id].nonText = 0, true
			}
		}
	}
	for _, id := range symbols {
		m.tokenMerges[id].rank = 0
	}
	return symbols
}

// bySize sorts merges by the size of the tokens that they make.
func (m *model) bySize(merges []merge) []merge {
	var first []int // per size
	for _, g := range merges {
		n := int(m.tokenMerges[g.c].size) + 1
		if n >= len(first) {
			first = append(first, make([]int, n+1-len(first))...)
		}
		first[n]++
	}
	for n := 1; n < len(first); n++ {
		first[n] += first[n-1]
	}
	sorted := make([]merge, len(merges))
	for _, g := range merges {
		at := &first[m.tokenMerges[g.c].size]
		sorted[*at] = g
		*at++
	}
	return sorted
}

// lastOfEqual drops a merge if an equal merge follows, because the reference engine uses the last
// of equal merges.
func lastOfEqual(merges []merge, ids int) []merge {
	// last and before form a linked list of the merges that make each token, latest merge first.
	// Such merges are equal if their left sides are equal.
	last := make([]int32, ids)
	before := make([]int32, len(merges))
	dropped := 0
	for i := range merges {
		g := &merges[i]
		// Unlink a dropped merge. Otherwise, a file with many equal merges would take quadratic
		// time.
		for k := &last[g.c]; *k > 0; k = &before[*k-1] {
			if h := &merges[*k-1]; h.a == g.a && h.b == g.b {
				h.c = -1
				dropped++
				*k = before[*k-1]
				break
			}
		}
		before[i], last[g.c] = last[g.c], int32(i+1)
	}
	if dropped == 0 {
		return merges
	}
	kept := merges[:0]
	for _, g := range merges {
		if g.c >= 0 {
			kept = append(kept, g)
		}
	}
	return kept
}
