package tap

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
)

// chunkLen is the number of ids in a chunk. Shorter chunks let prompts share more of their ids, but
// the bookkeeping takes more memory. With chunks of 128 ids, all prompts in a chain together take
// little more memory than the last prompt alone.
const chunkLen = 128

// A chunks value stores prompts. Prompts that begin with the same ids share the memory of these
// ids. Each prompt in a chain begins with the previous prompt, and the prompts in a group share
// their system text. Without sharing, the prompts in a chain of 16 calls would take eight times the
// memory of the last prompt.
type chunks struct {
	seeds seeds
	m     map[uint64][]*chunk
	bytes int64 // memory of the ids and of the bookkeeping
}

// A chunk contains chunkLen ids that at least one prompt uses. Two chunks never contain the same
// ids.
type chunk struct {
	ids  []int32
	sum  uint64 // hash with the first seed
	sum2 uint64 // hash with the second seed
	refs int
}

// chunkBytes is the approximate memory of a chunk and its map entry.
const chunkBytes = chunkLen*4 + 96

// A prompt is a sequence of ids. It is stored as chunks and a tail that is shorter than a chunk.
// The zero value means that the ids are unknown.
type prompt struct {
	chunks []*chunk
	tail   []int32
}

func (p prompt) len() int    { return len(p.chunks)*chunkLen + len(p.tail) }
func (p prompt) known() bool { return p.len() > 0 }

func newChunks(s seeds) *chunks {
	return &chunks{seeds: s, m: make(map[uint64][]*chunk)}
}

func (b *chunks) keep(ids []int32) prompt {
	p := prompt{chunks: make([]*chunk, 0, len(ids)/chunkLen)}
	for len(ids) >= chunkLen {
		p.chunks = append(p.chunks, b.one(ids[:chunkLen]))
		ids = ids[chunkLen:]
	}
	p.tail = slices.Clone(ids)
	b.bytes += int64(8*len(p.chunks) + 4*len(p.tail))
	return p
}

// one returns the chunk with these ids and increments its reference count.
func (b *chunks) one(ids []int32) *chunk {
	var room [4 * chunkLen]byte
	text := appendBits(room[:0], ids)
	sum := maphash.Bytes(b.seeds[0], text)
	for _, k := range b.m[sum] {
		if slices.Equal(k.ids, ids) {
			k.refs++
			return k
		}
	}
	k := &chunk{ids: slices.Clone(ids), sum: sum, sum2: maphash.Bytes(b.seeds[1], text), refs: 1}
	b.m[sum] = append(b.m[sum], k)
	b.bytes += chunkBytes
	return k
}

func (b *chunks) digest(p prompt) digest {
	var room [4 * chunkLen]byte
	tail := appendBits(room[:0], p.tail)
	var d digest
	for i, seed := range b.seeds {
		var h maphash.Hash
		h.SetSeed(seed)
		for _, k := range p.chunks {
			var word [16]byte
			binary.LittleEndian.PutUint64(word[:], k.sum)
			binary.LittleEndian.PutUint64(word[8:], k.sum2)
			_, _ = h.Write(word[:])
		}
		_, _ = h.Write(tail)
		d[i] = h.Sum64()
	}
	return d
}

func appendBits(b []byte, ids []int32) []byte {
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id)) //nolint:gosec // only the bits of the id matter
	}
	return b
}

func (b *chunks) release(p prompt) {
	b.bytes -= int64(8*len(p.chunks) + 4*len(p.tail))
	for _, k := range p.chunks {
		if k.refs--; k.refs > 0 {
			continue
		}
		b.bytes -= chunkBytes
		same := b.m[k.sum]
		if same = slices.DeleteFunc(same, func(o *chunk) bool { return o == k }); len(same) == 0 {
			delete(b.m, k.sum)
		} else {
			b.m[k.sum] = same
		}
	}
}

func (p prompt) append(dst []int32) []int32 {
	dst = slices.Grow(dst, p.len())
	for _, k := range p.chunks {
		dst = append(dst, k.ids...)
	}
	return append(dst, p.tail...)
}

// head returns the first n ids of the prompt, or all ids if the prompt has fewer than n.
func (p prompt) head(n int) []int32 {
	n = min(n, p.len())
	ids := make([]int32, 0, n)
	for len(ids) < n {
		part := p.slice(len(ids))
		ids = append(ids, part[:min(len(part), n-len(ids))]...)
	}
	return ids
}

// slice returns the ids from offset lo to the end of the chunk or tail that contains lo. The result
// is not empty if lo < p.len().
func (p prompt) slice(lo int) []int32 {
	if i := lo / chunkLen; i < len(p.chunks) {
		return p.chunks[i].ids[lo%chunkLen:]
	}
	return p.tail[lo-len(p.chunks)*chunkLen:]
}

// begins reports whether p begins with the prompt head or equals it.
func (p prompt) begins(head prompt) bool {
	n := len(head.chunks)
	return len(p.chunks) >= n && slices.Equal(p.chunks[:n], head.chunks) && p.has(n*chunkLen, head.tail)
}

func (p prompt) has(lo int, ids []int32) bool {
	if lo+len(ids) > p.len() {
		return false
	}
	for len(ids) > 0 {
		part := p.slice(lo)
		part = part[:min(len(part), len(ids))]
		if !slices.Equal(part, ids[:len(part)]) {
			return false
		}
		lo, ids = lo+len(part), ids[len(part):]
	}
	return true
}
