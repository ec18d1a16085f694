package bpe

import "unicode/utf8"

// Byte-pair merging repeatedly merges the pair of neighbors with the lowest rank, until no pair can
// merge. If several pairs have the lowest rank, it merges the leftmost pair.
//
// This package finds the result from left to right, without merging. A list of tokens is the result
// if and only if
//
//   - each token is the result for its own text, and
//   - every two neighbors are the result for their joined text. Such neighbors are called
//     compatible.
//
// Proof. First, suppose that the list is the result. No merge crosses the borders of a token in the
// list, or the outer borders of two neighbors. Therefore the text of the token, or of the two
// neighbors, merges in the same way when it is alone. Conversely, suppose that the list has both
// properties. Inside each token, merging proceeds as it would for the text of the token alone,
// until a pair merges across a border. That pair would also merge in the joined text of the two
// tokens alone, so the two tokens would not be compatible.
//
// Therefore at most one such list ends at a given position. The algorithm appends the longest token
// that is compatible with the last token. If there is no such token, the last token was wrong, and
// the algorithm replaces it with a shorter token. No position is reached twice, and every token
// that begins at a position is tried at most once. Therefore the time is at most the length of the
// text times a constant that depends on the vocabulary.

// longRun is the minimum number of bytes for which comparing text is faster than searching again.
const longRun = 8

// appendMerged appends the tokens of w, which must not be empty and must be shorter than 2 GiB.
func (m *model) appendMerged(dst []int32, w string, s *mergeScratch) []int32 {
	start := len(dst)
	if c := m.chars; c != nil && (c.keepOrder || c.byteMerges) {
		dst = c.appendSymbols(dst, w)
		return dst[:start+s.merge(m, dst[start:])]
	}
	// found is the longest token at w[was:]. It is reused while the same text repeats, as in a run
	// of one character.
	was, depends, found := 0, 0, int32(-1)
	for at := 0; at < len(w); {
		if depends < longRun || max(at, was)+depends > len(w) || w[at:at+depends] != w[was:was+depends] {
			found, depends = m.prefixes.longest(w[at:])
			was = at
		}
		tok := found
		if tok < 0 { // no token in the table begins with this character, so no merge includes it
			_, n := utf8.DecodeRuneInString(w[at:])
			dst = m.chars.appendSymbols(dst, w[at:at+n])
			at += n
			start = len(dst)
			continue
		}
		if len(dst) > start {
			tok = m.firstCompatible(dst[len(dst)-1], tok, s)
		}
		for tok < 0 {
			last := dst[len(dst)-1]
			dst = dst[:len(dst)-1]
			at -= int(m.tokenMerges[last].size)
			if tok = m.tokenMerges[last].prefix; len(dst) > start {
				tok = m.firstCompatible(dst[len(dst)-1], tok, s)
			}
		}
		dst = append(dst, tok)
		at += int(m.tokenMerges[tok].size)
	}
	return dst
}

// firstCompatible considers token b and its prefixes. It returns the longest of these tokens that
// is compatible with token a, or -1. Results are cached, because a long run of one character can
// need the same result many times.
func (m *model) firstCompatible(a, b int32, s *mergeScratch) int32 {
	if b < 0 {
		return -1
	}
	known := &s.first[(uint32(a)*0x9E3779B1^uint32(b)*0x85EBCA6B)>>(32-firstBits)]
	if known.a == a && known.b == b && known.some {
		return known.tok
	}
	tok := b
	for ; tok >= 0; tok = m.tokenMerges[tok].prefix {
		s.tries++
		if m.compatible(a, tok, s) {
			break
		}
	}
	*known = compatibleTok{a, b, tok, true}
	return tok
}

// A compatibleTok is a cached result of firstCompatible.
type compatibleTok struct {
	a, b, tok int32
	some      bool
}

const firstBits = 10 // the cache takes 16 KiB

// compatible reports whether merging the joined text of two tokens results in the same two tokens.
// It undoes the merges next to the border, latest first, and checks whether an earlier merge
// crosses the border.
func (m *model) compatible(a, b int32, s *mergeScratch) bool {
	if m.tokenMerges[a].outOfOrder || m.tokenMerges[b].outOfOrder {
		return m.compatibleByMerging(a, b, s)
	}
	before := neverMade // a merge across the border comes first if its rank is lower than this
	for {
		if c, ok := m.pairs.get(m.tokenMerges, a, b); ok && m.tokenMerges[c].rank < before {
			return false
		}
		x, y := &m.tokenMerges[a], &m.tokenMerges[b]
		switch {
		case x.rank > y.rank:
			before, a = x.rank, x.right
		case y.rank == 0:
			return true
		default: // if the ranks are equal, the left merge comes first
			before, b = y.rank+1, y.left
		}
	}
}

// compatibleByMerging is like compatible, but for tokens whose merges are not in the order of their
// ranks. It merges the joined text.
func (m *model) compatibleByMerging(a, b int32, s *mergeScratch) bool {
	s.ids = m.appendSymbolsOf(m.appendSymbolsOf(s.ids[:0], a), b)
	n := s.merge(m, s.ids)
	return n == 2 && s.ids[0] == a && s.ids[1] == b
}

func (m *model) appendSymbolsOf(dst []int32, id int32) []int32 {
	for m.tokenMerges[id].rank != 0 {
		dst = m.appendSymbolsOf(dst, m.tokenMerges[id].left)
		id = m.tokenMerges[id].right
	}
	return append(dst, id)
}

// mergeScratch is reused by later calls.
type mergeScratch struct {
	first [1 << firstBits]compatibleTok
	tries int // number of tokens tried so far; for tests

	ids, next, prev []int32
	queue           []uint64
}

// merge merges ids in place and returns the number of remaining ids, which are at the front. During
// the merge, the id of a symbol that was merged into its left neighbor is -1. An entry in the queue
// consists of a rank and a position. An entry is stale if the pair at its position now has another
// rank.
func (s *mergeScratch) merge(m *model, ids []int32) int {
	n := len(ids)
	if cap(s.next) < n {
		s.next, s.prev = make([]int32, max(n, 1024)), make([]int32, max(n, 1024))
	}
	next, prev, q := s.next[:n], s.prev[:n], s.queue[:0]
	pair := func(i int32) (entry uint64, made int32, ok bool) {
		if i < 0 || ids[i] < 0 || int(next[i]) == n {
			return 0, 0, false
		}
		c, ok := m.pairs.get(m.tokenMerges, ids[i], ids[next[i]])
		return uint64(m.tokenMerges[c].rank)<<32 | uint64(i), c, ok
	}
	for i := range n {
		next[i], prev[i] = int32(i+1), int32(i-1)
	}
	for i := range int32(n) {
		if p, _, ok := pair(i); ok {
			q = pushEntry(q, p)
		}
	}
	for len(q) > 0 {
		top := q[0]
		q = popEntry(q)
		at := int32(uint32(top))
		p, c, ok := pair(at)
		if !ok || p != top {
			continue
		}
		b := next[at]
		ids[at], ids[b] = c, -1
		next[at] = next[b]
		if int(next[at]) < n {
			prev[next[at]] = at
		}
		for _, i := range [2]int32{at, prev[at]} {
			if p, _, ok := pair(i); ok {
				q = pushEntry(q, p)
			}
		}
	}
	s.queue = q
	left := 0
	for i := int32(0); int(i) < n; i = next[i] {
		ids[left] = ids[i]
		left++
	}
	return left
}

// pushEntry and popEntry maintain the queue as a heap with the smallest entry first.
func pushEntry(q []uint64, e uint64) []uint64 {
	q = append(q, e)
	i := len(q) - 1
	for i > 0 {
		p := (i - 1) / 2
		if e >= q[p] {
			break
		}
		q[i] = q[p]
		i = p
	}
	q[i] = e
	return q
}

func popEntry(q []uint64) []uint64 {
	last := len(q) - 1
	e := q[last]
	q = q[:last]
	for i := 0; i < last; {
		k := 2*i + 1
		if k+1 < last && q[k+1] < q[k] {
			k++
		}
		if k >= last || q[k] >= e {
			q[i] = e
			break
		}
		q[i] = q[k]
		i = k
	}
	return q
}
