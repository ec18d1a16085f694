package tap

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// IDs is a packed list of token ids. Each id takes as many bits as the highest id in the list. With
// a vocabulary of 152,000 ids, this is at most 18 bits. The zero value is an empty list.
type IDs struct {
	n     int
	width uint   // number of bits for each id, 1 to 32
	at    uint   // the index of the bit in b at which the first id begins
	b     []byte // the ids, lowest bits first, and spare bytes, so that Next can read eight bytes at any id
}

const spare = 8

// PackIDs packs the concatenation of the lists. It keeps no reference to the lists.
func PackIDs(lists ...[]int32) IDs {
	n, high := 0, uint32(1)
	for _, ids := range lists {
		n += len(ids)
		for _, id := range ids {
			high |= uint32(id)
		}
	}
	if n == 0 {
		return IDs{}
	}
	l := IDs{n: n, width: uint(bits.Len32(high))}
	l.b = make([]byte, (uint(n)*l.width+7)/8+spare)
	word, filled, to := uint64(0), uint(0), l.b
	for _, ids := range lists {
		for _, id := range ids {
			word |= uint64(uint32(id)) << filled
			if filled += l.width; filled >= 32 {
				binary.LittleEndian.PutUint32(to, uint32(word))
				word, filled, to = word>>32, filled-32, to[4:]
			}
		}
	}
	binary.LittleEndian.PutUint32(to, uint32(word))
	return l
}

// Len returns the number of ids in the list.
func (l *IDs) Len() int { return l.n }

// Bytes returns the number of bytes of memory that the ids use.
func (l *IDs) Bytes() int { return len(l.b) }

// Next removes the first id from the list and returns the id. The list must not be empty. To keep
// the list, call Next on a copy of the IDs value. The copy is cheap, because both values share the
// packed ids.
func (l *IDs) Next() int32 {
	word := binary.LittleEndian.Uint64(l.b[l.at/8:])
	id := word >> (l.at % 8) & (1<<l.width - 1)
	l.at += l.width
	l.n--
	return int32(uint32(id))
}

// AppendTo appends the first n ids to dst. The list must contain at least n ids.
func (l IDs) AppendTo(dst []int32, n int) []int32 {
	from := len(dst)
	dst = slices.Grow(dst, n)[:from+n]
	for i := range dst[from:] {
		dst[from+i] = l.Next()
	}
	return dst
}
