// Package ucd provides the parts of the Unicode Character Database that the reference engine uses:
// version 16.0 for its regular expressions, and version 9.0 for its normalizer. The text files are
// parsed on first use.
package ucd

import (
	_ "embed"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The files contain code points in hexadecimal. gc16.txt and han16.txt have one range per line.
// gc16.txt omits control characters, format characters, private use, surrogates and unassigned
// characters. The script nfc9.py writes nfc9.txt.
var (
	//go:embed gc16.txt
	gc16 string
	//go:embed han16.txt
	han16 string
	//go:embed nfc9.txt
	nfc9 string
)

// Limit is the number of code points.
const Limit = 0x110000

// A Table has a value for each character r: Block[Index[r>>8]][r&255].
type Table[V comparable] struct {
	Index [Limit >> 8]uint8
	Block [][256]V
}

// At returns the value of r.
func (t *Table[V]) At(r rune) V { return t.Block[t.Index[r>>8]][r&255] }

func newTable[V comparable](values []V) *Table[V] {
	t := &Table[V]{}
	known := map[[256]V]uint8{}
	for hi := range t.Index {
		block := [256]V(values[hi<<8:])
		k, ok := known[block]
		if !ok {
			if len(t.Block) > math.MaxUint8 {
				panic("ucd: internal error: more than 256 different blocks")
			}
			k = uint8(len(t.Block))
			known[block] = k
			t.Block = append(t.Block, block)
		}
		t.Index[hi] = k
	}
	return t
}

// Han is the bit that is set in the kinds of characters from the Han script.
const Han = 32

// Categories lists the general categories. The index of a category is its kind. Kind 0 stands for
// every category that begins with C.
var Categories = []string{
	"C", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No",
	"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp",
}

// Kinds returns the kind of each character: its general category and, for a character from the Han
// script, the bit Han.
var Kinds = sync.OnceValue(func() *Table[uint8] {
	kinds := make([]uint8, Limit)
	for _, file := range []string{gc16, han16} {
		for line := range strings.Lines(file) {
			f := strings.Fields(line)
			kind := uint8(Han)
			if len(f) > 2 {
				kind = uint8(slices.Index(Categories, f[2]))
			}
			for r, last := hex(f[0]), hex(f[1]); r <= last; r++ {
				kinds[r] |= kind
			}
		}
	}
	return newTable(kinds)
})

// A Normal holds the data for canonical composition (NFC), except for Hangul syllables.
type Normal struct {
	// Props has the combining class of each character in the low byte, and the bits NotYes and
	// Decomposes.
	Props *Table[uint16]
	// Decomposed maps a character to one step of its canonical decomposition. The second character
	// is 0 if the step has only one character.
	Decomposed map[rune][2]rune
	// Composed maps two characters to their primary composite. It is the inverse of the
	// decompositions that Unicode does not exclude from composition.
	Composed map[[2]rune]rune
}

// The bits of Normal.Props.
const (
	Class      = 0xFF   // the combining class
	NotYes     = 1 << 8 // the character can change or compose with the characters before it
	Decomposes = 1 << 9
)

// NFC returns the data for canonical composition.
var NFC = sync.OnceValue(func() *Normal {
	n := &Normal{Decomposed: map[rune][2]rune{}, Composed: map[[2]rune]rune{}}
	props := make([]uint16, Limit)
	for line := range strings.Lines(nfc9) { // a line has the character, its class, its decomposition, and ! if composition excludes it
		f := strings.Fields(line)
		r := hex(f[0])
		class, _ := strconv.Atoi(f[1])
		props[r] |= uint16(class) //nolint:gosec // at most 255
		f, excluded := f[2:], f[len(f)-1] == "!"
		if len(f) == 0 {
			continue
		}
		pair := [2]rune{hex(f[0])}
		if len(f) > 1 && f[1] != "!" {
			pair[1] = hex(f[1])
		}
		n.Decomposed[r] = pair
		props[r] |= Decomposes
		if excluded {
			props[r] |= NotYes
		} else {
			n.Composed[pair] = r
			props[pair[1]] |= NotYes
		}
	}
	for r := 0x1161; r <= 0x11C2; r++ { // Hangul vowels and finals
		if r <= 0x1175 || r >= 0x11A8 {
			props[r] |= NotYes
		}
	}
	n.Props = newTable(props)
	return n
})

// hex parses a code point in the embedded files.
func hex(s string) rune {
	r, err := strconv.ParseInt(s, 16, 32)
	if err != nil {
		panic("ucd: internal error: " + err.Error())
	}
	return rune(r)
}
