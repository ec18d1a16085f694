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

// A payload is the body of a request as it is held while an engine works: its text, with the
// list of ids packed to less than half if that gives back the same bytes. It never changes, so
// it may be sent again, and by a transport that still reads an earlier sending.
type payload struct {
	front, back []byte // the text before and behind the list
	list        idList
}

// An idList is a JSON list of ids.
type idList struct {
	raw    []byte  // its text; nil if it is packed
	ids    tap.IDs // if it is packed
	spaced bool    // a space follows each comma
	size   int     // of the text
}

// pack returns the list of ids that text spells. It keeps neither.
func pack(text []byte, ids []int32) idList {
	if spaced, ok := spelled(text, ids); ok {
		return idList{ids: tap.PackIDs(ids), spaced: spaced, size: len(text)}
	}
	return idList{raw: slices.Clone(text), size: len(text)}
}

// spelled reports whether text, in which a Scanner read ids, is the plain spelling of them: with
// no space but one after each comma, or none. A Scanner takes digits alone, without a zero in
// front, so nothing else but space can be there.
func spelled(text []byte, ids []int32) (spaced, ok bool) {
	plain := sizeOf(ids)
	switch n := len(ids) - 1; {
	case n < 0:
		return false, false
	case len(text) == plain:
		return false, true
	case n == 0 || len(text) != plain+n:
		return false, false
	default: // as many spaces as commas
		return true, bytes.Count(text, []byte(", ")) == n
	}
}

// sizeOf returns the length of the shortest spelling of a list of ids.
func sizeOf(ids []int32) int {
	n := 1 // and a comma or a bracket behind each
	for _, id := range ids {
		n += digits(uint32(id)) + 1
	}
	return n
}

// digits returns how many v is spelled with: its logarithm is about 1233/4096 of that to the
// base 2, and one too large below the power of ten.
func digits(v uint32) int {
	n := bits.Len32(v|1) * 1233 >> 12
	if v|1 >= tens[n] {
		n++
	}
	return n
}

var tens = [...]uint32{1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000}

// packed returns the list of ids that takes the place of another one.
func packed(ids []int32) idList {
	return idList{ids: tap.PackIDs(ids), size: sizeOf(ids)}
}

// size returns the length of the text.
func (b *payload) size() int64 { return int64(len(b.front) + b.list.size + len(b.back)) }

// send returns the text.
func (b *payload) send() *sending {
	return &sending{front: b.front, raw: b.list.raw, ids: b.list.ids, spaced: b.list.spaced, back: b.back}
}

// A sending reads a payload. It lets go of what was read: the request lives as long as its
// answer.
type sending struct {
	front, raw, back []byte
	ids              tap.IDs
	spaced, opened   bool
}

// mostSpelled is the longest text of an id, with what stands before and behind it.
const mostSpelled = 16

func (s *sending) Read(p []byte) (n int, err error) {
	for n < len(p) {
		switch {
		case len(s.front) > 0:
			n += take(p[n:], &s.front)
		case len(s.raw) > 0:
			n += take(p[n:], &s.raw)
		case s.ids.Len() > 0 && len(p)-n >= mostSpelled:
			n += s.spell(p[n:])
		case s.ids.Len() > 0 && n > 0:
			return n, nil // there is more room the next time
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

// take moves bytes from rest to p.
func take(p []byte, rest *[]byte) int {
	n := copy(p, *rest)
	if *rest = (*rest)[n:]; len(*rest) == 0 {
		*rest = nil
	}
	return n
}

// spell writes ids as long as p has room for another one, with the bracket before the first
// and behind the last one, and returns how many bytes that are.
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
		s.ids = tap.IDs{} // the last of it
	}
	return n
}

// spellID writes an id, and returns how many bytes that are. It may write to the four bytes
// behind them. It takes a quarter of the time of strconv.AppendInt.
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

// threes has the numbers below 1,000 in three digits, the first in the lowest byte, and how
// many of them are needed in the highest byte.
var threes = func() (t [1_000]uint32) {
	for v := range uint32(1_000) {
		t[v] = uint32(digits(v))<<24 | (v%10+'0')<<16 | (v/10%10+'0')<<8 | (v/100 + '0')
	}
	return t
}()

func (s *sending) Close() error { return nil }
