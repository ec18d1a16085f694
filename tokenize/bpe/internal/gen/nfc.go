package main

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
)

// The bits above the combining class in a table entry.
const (
	notYes     = 1 << 8 // NFC_Quick_Check is No or Maybe
	decomposes = 1 << 9
)

func nfcTable(src string) ([]byte, error) {
	var (
		ccc      = map[rune]uint16{}
		pair     = map[rune][]rune{} // one step, as in the file
		excluded = map[rune]bool{}
	)
	err := lines(filepath.Join(src, "nfc9.txt"), func(f []string) error {
		if len(f) < 2 {
			return fmt.Errorf("want code point and class")
		}
		r, err := hex(f[0])
		if err != nil {
			return err
		}
		c, err := strconv.ParseUint(f[1], 10, 8)
		if err != nil {
			return err
		}
		if c != 0 {
			ccc[r] = uint16(c)
		}
		for _, x := range f[2:] {
			if x == "!" {
				excluded[r] = true
				continue
			}
			d, err := hex(x)
			if err != nil {
				return err
			}
			pair[r] = append(pair[r], d)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	props := make([]uint16, maxRune)
	for r, c := range ccc {
		props[r] |= c
	}
	for r, d := range pair {
		props[r] |= decomposes
		if excluded[r] {
			props[r] |= notYes
			continue
		}
		props[d[1]] |= notYes
	}
	for r := rune(0x1161); r <= 0x1175; r++ { // Hangul vowels and finals
		props[r] |= notYes
	}
	for r := rune(0x11A8); r <= 0x11C2; r++ {
		props[r] |= notYes
	}

	var b bytes.Buffer
	b.WriteString(header)
	b.WriteString("// Combining class (low byte) and the bits nfcNotYes and nfcDecomposes, of Unicode 9.0.\n")
	stages(&b, "nfc", props, "uint16")
	b.WriteString("\n// nfcDecomposed holds the canonical decompositions, one step each, by ascending code point. second\n")
	b.WriteString("// is 0 in a decomposition to one character.\nvar nfcDecomposed = [...]nfcDecomposition{\n")
	for n, r := range slices.Sorted(maps.Keys(pair)) {
		d := append(slices.Clone(pair[r]), 0)
		fmt.Fprintf(&b, "{%#x,%#x,%#x},", r, d[0], d[1])
		if n%6 == 5 {
			b.WriteByte('\n')
		}
	}
	b.WriteString("\n}\n")
	return b.Bytes(), nil
}
