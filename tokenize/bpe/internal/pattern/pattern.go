package pattern

import (
	"fmt"

	"github.com/rollout-rl/rollout/tokenize/bpe/internal/ucd"
)

// A Pattern is a compiled split pattern. It is immutable and safe for concurrent use.
//
// Each row of the table is a state. A row is indexed by the class of the next character. The end of
// the text has its own class. An entry contains the index of the next row. It can also have the bit
// special, together with one or both of these bits:
//
//	match   a match ends before the character
//	dead    no longer match is possible
type Pattern struct {
	ascii [256]uint8 // classes of the characters below 0x80
	index []uint16   // class of r: block[index[r>>8]][r&255]
	block [][256]uint8

	table  []uint32   // the first row is the start state
	atEnd  uint32     // class of the end of the text
	begins [256]uint8 // 1 for the classes that can begin a match
	first  [256]uint8 // like begins, but indexed by the first byte of a character; always 1 for non-ASCII bytes
	covers bool
}

const (
	special uint32 = 1 << 31
	match   uint32 = 1 << 30
	dead    uint32 = 1 << 29
	rowMask        = dead - 1
)

// Covers reports whether every character begins a match. If so, there are no gaps between matches.
func (p *Pattern) Covers() bool { return p.covers }

// End returns the end of the match that begins at s[i], or i if no match begins there. s must be
// valid UTF-8, and i must be a character boundary with i < len(s).
func (p *Pattern) End(s string, i int) int {
	last := i
	row := uint32(0)
	table := p.table
	for j := i; j < len(s); {
		b := s[j]
		size := 1
		c := uint32(p.ascii[b])
		if b >= 0x80 {
			if b >= 0xE0 && b < 0xF0 && j+2 < len(s) {
				r := uint32(b&0x0F)<<12 | uint32(s[j+1]&0x3F)<<6 | uint32(s[j+2]&0x3F)
				c = uint32(p.block[p.index[r>>8]][r&255])
				size = 3
			} else {
				c, size = p.classAt(s, j)
			}
		}
		t := table[row|c]
		if t == row { // while the state stays the same, the branch is predicted, so the next lookup does not wait for this one
			j += size
			continue
		}
		if t >= special {
			if t&match != 0 {
				last = j
			}
			if t&dead != 0 {
				return last
			}
			t &= rowMask
		}
		row = t
		j += size
	}
	if table[row|p.atEnd]&match != 0 {
		return len(s)
	}
	return last
}

// Next returns the first match that begins at or after s[i]. If there is no match, start and end
// are len(s). s must be valid UTF-8, and i must be a character boundary.
func (p *Pattern) Next(s string, i int) (start, end int) {
	for i < len(s) {
		b := s[i]
		if p.first[b] == 0 {
			i++
			continue
		}
		size := 1
		if b >= 0x80 {
			var c uint32
			if c, size = p.classAt(s, i); p.begins[uint8(c)] == 0 {
				i += size
				continue
			}
		}
		if end := p.End(s, i); end > i {
			return i, end
		}
		i += size
	}
	return len(s), len(s)
}

// classAt returns the class of the non-ASCII character at s[i], and its length in bytes.
func (p *Pattern) classAt(s string, i int) (class uint32, size int) {
	b := s[i]
	var r uint32
	switch {
	case b < 0xE0 && i+1 < len(s):
		r, size = uint32(b&0x1F)<<6|uint32(s[i+1]&0x3F), 2
	case b < 0xF0 && i+2 < len(s):
		r, size = uint32(b&0x0F)<<12|uint32(s[i+1]&0x3F)<<6|uint32(s[i+2]&0x3F), 3
	case i+3 < len(s):
		r, size = uint32(b&0x07)<<18|uint32(s[i+1]&0x3F)<<12|uint32(s[i+2]&0x3F)<<6|uint32(s[i+3]&0x3F), 4
	default:
		return 0, 1 // not reached on valid UTF-8
	}
	if r < ucd.Limit {
		return uint32(p.block[p.index[r>>8]][r&255]), size
	}
	return 0, size
}

// A SyntaxError reports the construct that made Compile reject a pattern.
type SyntaxError struct {
	Offset int    // start of the construct, in bytes of the pattern
	What   string // the construct
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("byte %d: %s", e.Offset, e.What)
}
