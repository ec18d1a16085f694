package main

import (
	"bytes"
	"fmt"
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
	type composed struct {
		key uint64
		r   rune
	}
	var compose []composed
	for r, d := range pair {
		props[r] |= decomposes
		if excluded[r] {
			props[r] |= notYes
			continue
		}
		compose = append(compose, composed{uint64(d[0])<<32 | uint64(d[1]), r})
		props[d[1]] |= notYes
	}
	for r := rune(0x1161); r <= 0x1175; r++ { // Hangul vowels and finals
		props[r] |= notYes
	}
	for r := rune(0x11A8); r <= 0x11C2; r++ {
		props[r] |= notYes
	}
	slices.SortFunc(compose, func(a, b composed) int {
		if a.key < b.key {
			return -1
		}
		return 1
	})
	var full func(r rune) []rune
	full = func(r rune) []rune {
		d, ok := pair[r]
		if !ok {
			return []rune{r}
		}
		var out []rune
		for _, x := range d {
			out = append(out, full(x)...)
		}
		return out
	}

	var b bytes.Buffer
	b.WriteString(header)
	b.WriteString("// Combining class (low byte) and the bits nfcNotYes and nfcDecomposes, of Unicode 9.0.\n")
	stages(&b, "nfc", props, "uint16")
	var flat []rune
	b.WriteString("\n// nfcDecomposed holds, by ascending code point, where its full canonical decomposition\n// is in nfcRunes.\nvar nfcDecomposed = [...]struct{ r rune; at uint16; n uint8 }{\n")
	n := 0
	for r := range rune(maxRune) {
		if _, ok := pair[r]; !ok {
			continue
		}
		d := full(r)
		fmt.Fprintf(&b, "{%#x,%d,%d},", r, len(flat), len(d))
		if n++; n%8 == 0 {
			b.WriteByte('\n')
		}
		flat = append(flat, d...)
	}
	b.WriteString("\n}\n\nvar nfcRunes = [...]rune{")
	for i, r := range flat {
		if i%16 == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%#x,", r)
	}
	b.WriteString("\n}\n\n// nfcComposed holds the primary composites by ascending pair.\nvar nfcComposed = [...]struct{ first, second, r rune }{\n")
	for i, c := range compose {
		fmt.Fprintf(&b, "{%#x,%#x,%#x},", c.key>>32, uint32(c.key), c.r)
		if i%6 == 5 {
			b.WriteByte('\n')
		}
	}
	b.WriteString("\n}\n")
	return b.Bytes(), nil
}
