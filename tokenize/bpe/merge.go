package bpe

// Byte-pair merging: as long as two neighbours merge, the pair of the lowest
// rank does, the leftmost of several. Short words keep everything in arrays on
// the stack and look for the minimum in a line; long ones keep a heap, so that a
// word of n bytes takes n log n.

// shortWord is where the two ways cost the same, measured on random letters.
const shortWord = 96

// appendMerged appends the tokens of w, which is not empty and under 2 GiB.
func (m *model) appendMerged(dst []int32, w string, h *mergeHeap) []int32 {
	start := len(dst)
	dst = m.appendSymbols(dst, w)
	return dst[:start+m.mergeSymbols(dst[start:], h)]
}

// appendSymbols appends what merging begins with: the token of each byte of w, or
// of each character.
func (m *model) appendSymbols(dst []int32, w string) []int32 {
	if m.chars != nil {
		return m.chars.appendSymbols(dst, w)
	}
	for i := range len(w) {
		dst = append(dst, m.byteID[w[i]])
	}
	return dst
}

// mergeSymbols merges ids in place and returns how many are left, at the front.
func (m *model) mergeSymbols(ids []int32, h *mergeHeap) int {
	if len(ids) > shortWord {
		return h.merge(m, ids)
	}
	var pair [shortWord]uint64 // merge of ids[i] and ids[i+1]
	n := len(ids)
	for i := range n - 1 {
		pair[i] = m.pairs.get(ids[i], ids[i+1])
	}
	for n > 1 {
		best, at := noMerge, 0
		for i, p := range pair[:n-1] {
			if p < best {
				best, at = p, i
			}
		}
		if best == noMerge {
			break
		}
		ids[at] = int32(uint32(best))
		copy(ids[at+1:n-1], ids[at+2:n])
		if at+2 < n {
			copy(pair[at+1:n-2], pair[at+2:n-1])
			pair[at] = m.pairs.get(ids[at], ids[at+1])
		}
		n--
		if at > 0 {
			pair[at-1] = m.pairs.get(ids[at-1], ids[at])
		}
	}
	return n
}

// A mergeHeap is the memory for merging long words, kept between calls.
type mergeHeap struct {
	next, prev []int32 // neighbours of each symbol that is left
	heap       []candidate
}

// A candidate is a pair that may merge. It is stale once either side changed;
// a side only ever grows, so its tokens tell.
type candidate struct {
	merge uint64
	at    int32
	left  int32
	right int32
}

func (c *candidate) before(d *candidate) bool {
	return c.merge < d.merge || c.merge == d.merge && c.at < d.at
}

// merge merges ids in place and returns how many are left, at the front. Meanwhile
// a symbol that was joined to the left is -1.
func (h *mergeHeap) merge(m *model, ids []int32) int {
	n := len(ids)
	if cap(h.next) < n {
		h.next, h.prev = make([]int32, n), make([]int32, n)
	}
	next, prev := h.next[:n], h.prev[:n]
	heap := h.heap[:0]
	for i := range n {
		next[i], prev[i] = int32(i+1), int32(i-1)
		if i+1 < n {
			if p := m.pairs.get(ids[i], ids[i+1]); p != noMerge {
				heap = append(heap, candidate{p, int32(i), ids[i], ids[i+1]})
			}
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		siftDown(heap, i)
	}
	for len(heap) > 0 {
		c := heap[0]
		last := len(heap) - 1
		heap[0] = heap[last]
		heap = heap[:last]
		siftDown(heap, 0)

		a, b := c.at, next[c.at]
		if ids[a] != c.left || int(b) >= n || ids[b] != c.right {
			continue
		}
		ids[a], ids[b] = int32(uint32(c.merge)), -1
		b = next[b]
		next[a] = b
		if int(b) < n {
			prev[b] = a
			if p := m.pairs.get(ids[a], ids[b]); p != noMerge {
				heap = siftUp(append(heap, candidate{p, a, ids[a], ids[b]}))
			}
		}
		if b = prev[a]; b >= 0 {
			if p := m.pairs.get(ids[b], ids[a]); p != noMerge {
				heap = siftUp(append(heap, candidate{p, b, ids[b], ids[a]}))
			}
		}
	}
	h.heap = heap[:0]
	left := 0
	for i := int32(0); int(i) < n; i = next[i] {
		ids[left] = ids[i]
		left++
	}
	return left
}

func siftUp(h []candidate) []candidate {
	i := len(h) - 1
	c := h[i]
	for i > 0 {
		p := (i - 1) / 2
		if !c.before(&h[p]) {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = c
	return h
}

func siftDown(h []candidate, i int) {
	if i >= len(h) {
		return
	}
	c := h[i]
	for {
		k := 2*i + 1
		if k >= len(h) {
			break
		}
		if k+1 < len(h) && h[k+1].before(&h[k]) {
			k++
		}
		if !h[k].before(&c) {
			break
		}
		h[i] = h[k]
		i = k
	}
	h[i] = c
}
