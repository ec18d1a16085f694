package bpe

import "unicode/utf8"

// Byte-pair merging: as long as two neighbours merge, the pair of the lowest rank
// does, the leftmost of several.
//
// The result is found from left to right, without merging. A list of tokens is the
// result for their joined text exactly where
//
//   - each token alone is the result for its own text, and
//   - each two neighbours alone are the result for their joined text: they are
//     compatible.
//
// If it is the result: merging never crosses the borders of what ends as one
// token, or as two neighbours, so inside it goes as it would alone. If it is a list
// as described: merging goes inside each token as it would alone, until a pair
// merges across a border; then that pair would also have merged in the text of the
// two tokens alone, and they would not be compatible.
//
// So one list at most ends at a given place. The longest token that is compatible
// with the one before is taken; where none is, the token before was wrong and gives
// way to a shorter one. No list leads to its end again, so every place is reached
// once at most, and every token that begins there is tried once at most: the time is
// the length of the text times a constant of the vocabulary.

// longRun is from how many bytes on a comparison is quicker than another search.
const longRun = 8

// appendMerged appends the tokens of w, which is not empty and under 2 GiB.
func (m *model) appendMerged(dst []int32, w string, s *mergeScratch) []int32 {
	start := len(dst)
	if c := m.chars; c != nil && (c.order || c.merged) {
		dst = c.appendSymbols(dst, w)
		return dst[:start+s.merge(m, dst[start:])]
	}
	// What was found for the bytes behind was: in a run of one character it comes again.
	was, depends, found := 0, 0, int32(-1)
	for at := 0; at < len(w); {
		if depends < longRun || max(at, was)+depends > len(w) || w[at:at+depends] != w[was:was+depends] {
			found, depends = m.prefixes.longest(w[at:])
			was = at
		}
		tok := found
		if tok < 0 { // a character that no token begins with: nothing crosses it
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
			at -= int(m.makings[last].size)
			if tok = m.makings[last].prefix; len(dst) > start {
				tok = m.firstCompatible(dst[len(dst)-1], tok, s)
			}
		}
		dst = append(dst, tok)
		at += int(m.makings[tok].size)
	}
	return dst
}

// firstCompatible returns the longest token that b begins with, b itself before all, and
// that is compatible with a; -1 where none is. In a run of one character the same two are
// asked for again and again, where a vocabulary may have a token for each length.
func (m *model) firstCompatible(a, b int32, s *mergeScratch) int32 {
	if b < 0 {
		return -1
	}
	known := &s.first[(uint32(a)*0x9E3779B1^uint32(b)*0x85EBCA6B)>>(32-firstBits)]
	if known.a == a && known.b == b && known.some {
		return known.tok
	}
	tok := b
	for ; tok >= 0; tok = m.makings[tok].prefix {
		s.tries++
		if m.compatible(a, tok, s) {
			break
		}
	}
	*known = compatibleTok{a, b, tok, true}
	return tok
}

// A compatibleTok is what firstCompatible found for a and b.
type compatibleTok struct {
	a, b, tok int32
	some      bool
}

const firstBits = 10 // 16 KiB

// compatible reports whether merging the text of two tokens gives them again. It
// undoes their merges at the border, the latest first, and looks whether a pair
// across the border would have gone before.
func (m *model) compatible(a, b int32, s *mergeScratch) bool {
	if m.makings[a].wild || m.makings[b].wild {
		return m.compatibleWild(a, b, s)
	}
	before := unmade // the merge across the border must not have a lower rank
	for {
		if c, ok := m.pairs.get(m.makings, a, b); ok && m.makings[c].rank < before {
			return false
		}
		x, y := &m.makings[a], &m.makings[b]
		switch {
		case x.rank > y.rank:
			before, a = x.rank, x.right
		case y.rank == 0:
			return true
		default: // of the same rank the left one goes first
			before, b = y.rank+1, y.left
		}
	}
}

// compatibleWild is compatible for tokens that are not made in the order of ranks:
// it merges.
func (m *model) compatibleWild(a, b int32, s *mergeScratch) bool {
	s.ids = m.appendParts(m.appendParts(s.ids[:0], a), b)
	n := s.merge(m, s.ids)
	return n == 2 && s.ids[0] == a && s.ids[1] == b
}

// appendParts appends the symbols that token id is made of.
func (m *model) appendParts(dst []int32, id int32) []int32 {
	for m.makings[id].rank != 0 {
		dst = m.appendParts(dst, m.makings[id].left)
		id = m.makings[id].right
	}
	return append(dst, id)
}

// mergeScratch is the memory for merging, kept between calls.
type mergeScratch struct {
	first [1 << firstBits]compatibleTok
	tries int // tokens tried, ever; tests count them

	ids, next, prev []int32
	queue           []uint64
}

// merge merges ids in place and returns how many are left, at the front. Meanwhile
// a symbol that was joined to the left is -1. An entry of the queue is a rank and a
// place; it is stale where the pair at that place has another rank now.
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
		c, ok := m.pairs.get(m.makings, ids[i], ids[next[i]])
		return uint64(m.makings[c].rank)<<32 | uint64(i), c, ok
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

// pushEntry and popEntry keep the least entry of a queue at its front, as a heap.
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
