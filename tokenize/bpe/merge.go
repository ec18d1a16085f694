package bpe

// Byte-pair merging: as long as two neighbours merge, the pair of the lowest
// rank does, the leftmost of several. Short words keep everything in arrays on
// the stack and look for the minimum in a line; long ones keep a heap, so that a
// word of n bytes takes n log n.

// shortWord is where the two ways cost the same, measured on random letters.
const shortWord = 96

// appendMerged appends the tokens of w, which is not empty and under 2 GiB.
func (m *model) appendMerged(dst []int32, w string, h *mergeHeap) []int32 {
	switch {
	case len(w) == 1:
		return append(dst, m.byteID[w[0]])
	case len(w) > shortWord:
		return h.appendMerged(dst, m, w)
	}
	var (
		ids  [shortWord]int32
		pair [shortWord]uint64 // merge of ids[i] and ids[i+1]
	)
	n := len(w)
	for i := range n - 1 {
		ids[i] = m.byteID[w[i]]
		pair[i] = m.bytePair[int(w[i])<<8|int(w[i+1])]
	}
	ids[n-1] = m.byteID[w[n-1]]
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
	return append(dst, ids[:n]...)
}

// A mergeHeap is the memory for merging long words, kept between calls.
type mergeHeap struct {
	ids        []int32 // token that begins at each byte, -1 where it was joined to the left
	next, prev []int32
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

func (h *mergeHeap) appendMerged(dst []int32, m *model, w string) []int32 {
	n := len(w)
	if cap(h.ids) < n {
		h.ids, h.next, h.prev = make([]int32, n), make([]int32, n), make([]int32, n)
	}
	ids, next, prev := h.ids[:n], h.next[:n], h.prev[:n]
	heap := h.heap[:0]
	for i := range n {
		ids[i], next[i], prev[i] = m.byteID[w[i]], int32(i+1), int32(i-1)
		if i+1 < n {
			if p := m.bytePair[int(w[i])<<8|int(w[i+1])]; p != noMerge {
				heap = append(heap, candidate{p, int32(i), m.byteID[w[i]], m.byteID[w[i+1]]})
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
	for i := int32(0); int(i) < n; i = next[i] {
		dst = append(dst, ids[i])
	}
	h.heap = heap[:0]
	return dst
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
