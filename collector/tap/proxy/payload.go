package proxy

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/bits"
	"slices"
	"strconv"

	"github.com/rollout-rl/rollout/collector/tap"
)

// A payload is a request body that is kept while an engine is working on it. If the list of ids in
// the body can be restored byte for byte, the list is packed to less than half its size. A payload
// is immutable, so it can be resent while a transport is still reading it for an earlier request.
type payload struct {
	front, back []byte // the bytes before and after the list
	list        idList
	parts       [][]byte // the whole body, if front, back and list are empty
}

// An idList is a JSON list of ids.
type idList struct {
	raw    []byte  // the list as JSON text; nil if packed
	ids    tap.IDs // set if packed
	spaced bool    // a space follows each comma
	size   int     // size of the JSON text, in bytes
}

// pack returns the idList for a JSON list of ids. ids contains the parsed list. The result shares
// no memory with text or ids.
func pack(text []byte, ids []int32) idList {
	if spaced, ok := spelled(text, ids); ok {
		return idList{ids: tap.PackIDs(ids), spaced: spaced, size: len(text)}
	}
	return idList{raw: slices.Clone(text), size: len(text)}
}

// spelled reports whether text has no white space, or exactly one space after each comma. In the
// second case, spaced is true. A Scanner has parsed text, so the text can vary only in its white
// space. It is therefore enough to compare lengths and count separators.
func spelled(text []byte, ids []int32) (spaced, ok bool) {
	plain := sizeOf(ids)
	switch n := len(ids) - 1; {
	case n < 0:
		return false, false
	case len(text) == plain:
		return false, true
	case n == 0 || len(text) != plain+n:
		return false, false
	default: // there must be one space for each comma
		return true, bytes.Count(text, []byte(", ")) == n
	}
}

// sizeOf returns the number of bytes in the JSON text of a list of ids without spaces.
func sizeOf(ids []int32) int {
	n := 1 // for the opening bracket; a comma or bracket follows each id
	for _, id := range ids {
		n += digits(uint32(id)) + 1
	}
	return n
}

// digits returns the number of decimal digits in v. It first multiplies the bit length by log10(2),
// which is about 1233/4096. This estimate, n, is too small by one if v ≥ 10^n.
func digits(v uint32) int {
	n := bits.Len32(v|1) * 1233 >> 12
	if v|1 >= tens[n] {
		n++
	}
	return n
}

var tens = [...]uint32{1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000}

func packed(ids []int32) idList {
	return idList{ids: tap.PackIDs(ids), size: sizeOf(ids)}
}

func (b *payload) size() int64 {
	n := len(b.front) + b.list.size + len(b.back)
	for _, part := range b.parts {
		n += len(part)
	}
	return int64(n)
}

func (b *payload) send() *sending {
	return &sending{parts: b.parts, front: b.front, raw: b.list.raw, ids: b.list.ids, spaced: b.list.spaced, back: b.back}
}

// A sending reads the contents of a payload. It drops its references to the parts that have been
// read, because the sending stays in memory as long as the request.
type sending struct {
	parts            [][]byte
	front, raw, back []byte
	ids              tap.IDs
	spaced, opened   bool
}

// mostSpelled is an upper bound for the number of bytes that one id and its separators take.
const mostSpelled = 16

func (s *sending) Read(p []byte) (n int, err error) {
	for n < len(p) {
		switch {
		case len(s.front) == 0 && len(s.parts) > 0:
			s.front, s.parts = s.parts[0], s.parts[1:]
		case len(s.front) > 0:
			n += take(p[n:], &s.front)
		case len(s.raw) > 0:
			n += take(p[n:], &s.raw)
		case s.ids.Len() > 0 && len(p)-n >= mostSpelled:
			n += s.spell(p[n:])
		case s.ids.Len() > 0 && n > 0:
			return n, nil // the next Read has more room
		case s.ids.Len() > 0:
			one := make([]byte, mostSpelled)
			s.front = one[:s.spell(one)]
		case len(s.back) > 0:
			n += take(p[n:], &s.back)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
	return n, nil
}

func take(p []byte, rest *[]byte) int {
	n := copy(p, *rest)
	if *rest = (*rest)[n:]; len(*rest) == 0 {
		*rest = nil
	}
	return n
}

// spell writes ids with their separators while p has room. It returns the number of bytes written.
func (s *sending) spell(p []byte) (n int) {
	if !s.opened {
		s.opened = true
		p[0] = '['
		n = 1 + spellID(p[1:], s.ids.Next())
	}
	for s.ids.Len() > 0 && len(p)-n >= mostSpelled {
		p[n] = ','
		n++
		if s.spaced {
			p[n] = ' '
			n++
		}
		n += spellID(p[n:], s.ids.Next())
	}
	if s.ids.Len() == 0 {
		p[n] = ']'
		n++
		s.ids = tap.IDs{} // release the packed ids
	}
	return n
}

// spellID writes an id and returns its number of digits. It can also overwrite up to four bytes
// after the digits. spellID takes a quarter of the time of strconv.AppendInt.
func spellID(p []byte, id int32) int {
	switch v := uint32(id); {
	case v < 1_000:
		t := threes[v]
		binary.LittleEndian.PutUint32(p, t>>(24-8*(t>>24)))
		return int(t >> 24)
	case v < 1_000_000:
		high, low := threes[v/1_000], threes[v%1_000]
		n := high >> 24
		binary.LittleEndian.PutUint32(p, high&0xffffff>>(24-8*n))
		binary.LittleEndian.PutUint32(p[n:], low)
		return int(n + 3)
	default:
		return len(strconv.AppendInt(p[:0], int64(id), 10))
	}
}

// Entry v of threes contains the three digits of v as text, including leading zeros, with the first
// digit in the lowest byte. The highest byte is the number of digits without leading zeros.
var threes = func() (t [1_000]uint32) {
	for v := range uint32(1_000) {
		t[v] = uint32(digits(v))<<24 | (v%10+'0')<<16 | (v/10%10+'0')<<8 | (v/100 + '0')
	}
	return t
}()

func (s *sending) Close() error { return nil }
