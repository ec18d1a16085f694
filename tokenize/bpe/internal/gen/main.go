// Command gen writes the tables of package bpe: the general categories that split
// patterns ask for, of Unicode 16.0, and canonical composition of Unicode 9.0.
//
//	go run ./internal/gen        in tokenize/bpe
//
// It reads testdata/unicode. The two versions are those of the reference engine:
// its regular expressions know Unicode 16.0, its normalizer 9.0.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const maxRune = 0x110000

func main() {
	log.SetFlags(0)
	if err := run("../../testdata/unicode", "."); err != nil {
		log.Fatalln("gen:", err)
	}
}

func run(src, dst string) error {
	classes, err := classTable(src)
	if err != nil {
		return err
	}
	nfc, err := nfcTable(src)
	if err != nil {
		return err
	}
	kinds, err := kindTable(src)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(dst, "internal", "pattern", "tables.go"), kinds); err != nil {
		return err
	}
	if err := write(filepath.Join(dst, "class_tables.go"), classes); err != nil {
		return err
	}
	return write(filepath.Join(dst, "nfc_tables.go"), nfc)
}

func write(name string, src []byte) error {
	out, err := format.Source(src)
	if err != nil {
		return err
	}
	return os.WriteFile(name, out, 0o644)
}

// lines calls f with the fields of each line.
func lines(name string, f func(fields []string) error) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	sc := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; sc.Scan(); n++ {
		if err := f(strings.Fields(sc.Text())); err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	return sc.Err()
}

func hex(s string) (rune, error) {
	v, err := strconv.ParseUint(s, 16, 21)
	return rune(v), err
}

// eachRange calls f with the code points of "first last …" lines.
func eachRange(name string, f func(r rune, rest []string)) error {
	return lines(name, func(fields []string) error {
		if len(fields) < 2 {
			return fmt.Errorf("want first and last")
		}
		a, err1 := hex(fields[0])
		b, err2 := hex(fields[1])
		if err1 != nil || err2 != nil {
			return fmt.Errorf("bad range")
		}
		for ; a <= b; a++ {
			f(a, fields[2:])
		}
		return nil
	})
}

// The class bits; class.go says what they mean.
const (
	letter = 1 << iota
	number
	space
	upper
	lower
	symbol
	cjk
	han
)

func classTable(src string) ([]byte, error) {
	class := make([]uint16, maxRune)
	isWord := make([]bool, maxRune)
	err := eachRange(filepath.Join(src, "gc16.txt"), func(r rune, rest []string) {
		var c uint16
		switch rest[0] {
		case "Lu", "Lt":
			c = letter | upper
		case "Ll":
			c = letter | lower
		case "Lm", "Lo":
			c = letter | upper | lower
		case "Mn", "Mc", "Me":
			c = upper | lower
		case "Nd", "Nl", "No":
			c = number
		case "Zs", "Zl", "Zp":
			c = space
		case "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So":
			c = symbol
		}
		class[r] |= c
		switch rest[0][0] {
		case 'L', 'M':
			isWord[r] = true
		}
		switch rest[0] {
		case "Nd", "Nl", "Pc":
			isWord[r] = true
		}
	})
	if err != nil {
		return nil, err
	}
	for _, r := range "\t\n\v\f\r\u0085" {
		class[r] |= space
	}
	for _, rg := range [][2]rune{{0x4E00, 0x9FA5}, {0x3040, 0x309F}, {0x30A0, 0x30FF}} {
		for r := rg[0]; r <= rg[1]; r++ {
			class[r] |= cjk
		}
	}
	if err := eachRange(filepath.Join(src, "han16.txt"), func(r rune, _ []string) { class[r] |= han }); err != nil {
		return nil, err
	}
	// Other_Alphabetic holds marks and these symbols; Join_Control is ZWNJ and ZWJ.
	for _, rg := range [][2]rune{{0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}, {0x200C, 0x200D}} {
		for r := rg[0]; r <= rg[1]; r++ {
			isWord[r] = true
		}
	}
	var b bytes.Buffer
	b.WriteString(header)
	b.WriteString("// Classes of Unicode 16.0, in two stages: classBlock[classIndex[r>>8]][r&255].\n")
	stages(&b, "class", class, "uint8")
	b.WriteString("\n// wordRanges are the characters that \\w matches, first and last of each range.\n")
	b.WriteString("var wordRanges = [...][2]rune{\n")
	n := 0
	for r := rune(0); r < maxRune; {
		if !isWord[r] {
			r++
			continue
		}
		e := r
		for e+1 < maxRune && isWord[e+1] {
			e++
		}
		fmt.Fprintf(&b, "{%#x, %#x},", r, e)
		if n++; n%6 == 0 {
			b.WriteByte('\n')
		}
		r = e + 1
	}
	b.WriteString("\n}\n")
	return b.Bytes(), nil
}

// kindNames are the general categories by number, as set.go of package pattern
// lists them, and kindHan is added for the script Han.
var kindNames = strings.Fields("C Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp")

const kindHan = 32

func kindTable(src string) ([]byte, error) {
	kind := make([]uint16, maxRune)
	number := map[string]uint16{}
	for k, name := range kindNames {
		number[name] = uint16(k)
	}
	if err := eachRange(filepath.Join(src, "gc16.txt"), func(r rune, rest []string) { kind[r] = number[rest[0]] }); err != nil {
		return nil, err
	}
	if err := eachRange(filepath.Join(src, "han16.txt"), func(r rune, _ []string) { kind[r] |= kindHan }); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("// Code generated by internal/gen; DO NOT EDIT.\n\npackage pattern\n\n")
	b.WriteString("// General categories and Han of Unicode 16.0, in two stages: kindBlock[kindIndex[r>>8]][r&255].\n")
	stages(&b, "kind", kind, "uint8")
	return b.Bytes(), nil
}

const header = "// Code generated by internal/gen; DO NOT EDIT.\n\npackage bpe\n\n"

// stages writes a two-stage table of 256-entry blocks.
func stages(b *bytes.Buffer, name string, values []uint16, typ string) {
	blocks := [][]uint16{make([]uint16, 256)} // first, so that a missing index means nothing
	seen := map[string]int{fmt.Sprint(blocks[0]): 0}
	index := make([]int, len(values)/256)
	for hi := range index {
		block := values[hi*256 : hi*256+256]
		key := fmt.Sprint(block)
		k, ok := seen[key]
		if !ok {
			k = len(blocks)
			seen[key] = k
			blocks = append(blocks, block)
		}
		index[hi] = k
	}
	if len(blocks) > 256 {
		panic("gen: internal error: more than 256 blocks")
	}
	// Both arrays list what is not zero only: most of the code space is empty.
	fmt.Fprintf(b, "var %sIndex = [%#x]uint8{", name, len(index))
	last := -1
	for hi, k := range index {
		if k == 0 {
			continue
		}
		if hi != last+1 {
			fmt.Fprintf(b, "\n%#x: ", hi)
		}
		fmt.Fprintf(b, "%d,", k)
		last = hi
	}
	fmt.Fprintf(b, "\n}\n\nvar %sBlock = [%d][256]%s{\n", name, len(blocks), typ)
	for _, block := range blocks {
		b.WriteByte('{')
		last := -1
		for i, v := range block {
			if v == 0 {
				continue
			}
			if i != last+1 {
				fmt.Fprintf(b, "%d: ", i)
			}
			fmt.Fprintf(b, "%d,", v)
			last = i
		}
		b.WriteString("},\n")
	}
	b.WriteString("}\n")
}
