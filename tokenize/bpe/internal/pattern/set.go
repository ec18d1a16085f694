package pattern

import (
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/bpe/internal/ucd"
)

// A set is a set of characters, usually the union of its kinds, ranges and sets. A kind combines a
// general category with a bit for the script Han. Only ranges distinguish characters of the same
// kind.
type set struct {
	kinds  uint64 // bit k stands for the characters of kind k
	ranges [][2]rune
	sets   []*set
	and    []*set // if not empty, the set is the intersection of these sets
	not    *set   // if not nil, the set is the complement of this set
}

func runes(lo, hi rune) *set { return &set{ranges: [][2]rune{{lo, hi}}} }

func union(a, b *set) *set { return &set{sets: []*set{a, b}} }

func (s *set) add(lo, hi rune) { s.ranges = append(s.ranges, [2]rune{lo, hi}) }

func (s *set) negate() *set { return &set{not: s} }

// has reports whether s contains r. The parameter kind must be the kind of r.
func (s *set) has(kind uint8, r rune) bool {
	if s.not != nil {
		return !s.not.has(kind, r)
	}
	if len(s.and) > 0 {
		return !slices.ContainsFunc(s.and, func(a *set) bool { return !a.has(kind, r) })
	}
	return s.kinds>>kind&1 != 0 ||
		slices.ContainsFunc(s.ranges, func(g [2]rune) bool { return g[0] <= r && r <= g[1] }) ||
		slices.ContainsFunc(s.sets, func(a *set) bool { return a.has(kind, r) })
}

// borders appends two characters for each range of s: the first character in the range and the
// first character after the range.
func (s *set) borders(dst []rune) []rune {
	for _, g := range s.ranges {
		dst = append(dst, g[0], g[1]+1)
	}
	for _, list := range [][]*set{s.sets, s.and} {
		for _, a := range list {
			dst = a.borders(dst)
		}
	}
	if s.not != nil {
		dst = s.not.borders(dst)
	}
	return dst
}

// category returns the set for a general category (such as Lu), for a group of categories (such as
// L), or for the script Han.
func category(name string) (*set, bool) {
	s := &set{}
	if name == "Han" {
		s.kinds = (1<<32 - 1) << ucd.Han
		return s, true
	}
	for k, full := range ucd.Categories {
		if full == name || len(name) == 1 && strings.HasPrefix(full, name) {
			s.kinds |= 1<<k | 1<<(k+ucd.Han)
		}
	}
	return s, s.kinds != 0
}

// spaces returns the set of characters that \s matches.
func spaces() *set {
	s, _ := category("Z")
	s.add('\t', '\r')
	s.add(0x85, 0x85)
	return s
}

func kindOf(r rune) uint8 { return ucd.Kinds().At(r) }

// wordKinds has the bits for letters, marks, decimal digits, letter numbers and connectors.
const wordKinds = 0b1_0111_1111_1110

// IsWord reports whether \w matches r, as defined by UTS 18. In addition to wordKinds, \w matches
// the symbols with the property Other_Alphabetic and the two characters with the property
// Join_Control, ZWNJ and ZWJ.
func IsWord(r rune) bool {
	switch {
	case 0x24B6 <= r && r <= 0x24E9, 0x1F130 <= r && r <= 0x1F149, 0x1F150 <= r && r <= 0x1F169, 0x1F170 <= r && r <= 0x1F189:
		return true
	case r == 0x200C, r == 0x200D:
		return true
	}
	return wordKinds>>(kindOf(r)%ucd.Han)&1 != 0
}

func isPunctuation(r rune) bool {
	return ucd.Categories[kindOf(r)%ucd.Han][0] == 'P'
}

// classes assigns a class to each character. All characters in a class are in the same sets.
type classes struct {
	n     int         // number of classes
	of    [][4]uint64 // of[k] has bit c if sets[k] contains the characters of class c
	index []uint16    // class of r: block[index[r>>8]][r&255]
	block [][256]uint8
}

// classify builds the classes. It returns false if there are too many classes.
func classify(sets []*set) (*classes, bool) {
	borders := []rune{0, ucd.Limit}
	for _, s := range sets {
		borders = s.borders(borders)
	}
	slices.Sort(borders)
	borders = slices.Compact(borders)

	c := &classes{of: make([][4]uint64, len(sets)), index: make([]uint16, ucd.Limit>>8)}
	// Between two borders, the kind determines the class. An element of the table between is the
	// class plus 1, or 0 before the first use.
	between := make([][2 * ucd.Han]uint8, len(borders)-1)
	byKey := map[uint64]uint8{} // bit k of the key is set if sets[k] contains the character
	class := func(i int, kind uint8) uint8 {
		if v := between[i][kind]; v > 0 {
			return v - 1
		}
		var key uint64
		for k, s := range sets {
			if s.has(kind, borders[i]) {
				key |= 1 << k
			}
		}
		v, ok := byKey[key]
		if !ok {
			v = uint8(len(byKey))
			byKey[key] = v
			for k := range sets {
				c.of[k][v>>6] |= key >> k & 1 << (v & 63)
			}
		}
		between[i][kind] = v + 1
		return v
	}
	same := map[[256]uint8]uint16{}
	type plain struct {
		kinds    uint8
		interval int
	}
	done := map[plain]uint16{} // blocks that contain no border
	all := ucd.Kinds()
	i := 0
	for hi := range c.index {
		first := rune(hi) << 8
		for borders[i+1] <= first {
			i++
		}
		isPlain := borders[i+1] >= first+256
		key := plain{all.Index[hi], i}
		if id, ok := done[key]; ok && isPlain {
			c.index[hi] = id
			continue
		}
		var b [256]uint8
		k := i
		for n, kind := range all.Block[all.Index[hi]] {
			for borders[k+1] <= first+rune(n) {
				k++
			}
			b[n] = class(k, kind)
		}
		if len(byKey) > maxClasses {
			return nil, false
		}
		id, ok := same[b]
		if !ok {
			id = uint16(len(c.block))
			same[b] = id
			c.block = append(c.block, b)
		}
		c.index[hi] = id
		if isPlain {
			done[key] = id
		}
	}
	c.n = len(byKey)
	return c, true
}
