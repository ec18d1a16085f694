// Package picturetest draws the pictures in the documentation, which show terminal output as SVG. A
// test redraws each picture and compares it with the file, so a picture always shows the current
// output.
package picturetest

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// The size of a character cell and of the margin, in CSS pixels.
const (
	column, row = 8, 18
	margin      = 16
)

// Terminal draws text as it appears on a terminal of the given width. It supports the escape
// sequences that the program writes: bold, dim and colors. The test fails if a line is too long or
// contains any other sequence.
func Terminal(t *testing.T, columns int, text string) []byte {
	t.Helper()
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	width, height := columns*column+2*margin, len(lines)*row+2*margin
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", width, height, width, height)
	fmt.Fprintf(&out, `<rect width="%d" height="%d" rx="8" fill="#14181d"/>`+"\n", width, height)
	fmt.Fprintf(&out, `<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace" font-size="13" fill="#d7dde4">`+"\n")
	for i, line := range lines {
		at, style := 0, ""
		y := margin + i*row
		for rest := line; rest != ""; {
			if m := escape.FindStringSubmatch(rest); m != nil {
				rest, style = rest[len(m[0]):], attributes(m[1])
				continue
			}
			piece := rest
			if n := strings.IndexByte(rest, 0x1b); n == 0 {
				t.Fatalf("%q: an escape sequence that is not known", rest)
			} else if n > 0 {
				piece = rest[:n]
			}
			rest = rest[len(piece):]
			at += draw(&out, at, y, piece, style)
		}
		if at > columns {
			t.Fatalf("%q has %d columns, the terminal %d", line, at, columns)
		}
	}
	out.WriteString("</g>\n</svg>\n")
	return out.Bytes()
}

// escape matches a sequence that sets the style of text.
var escape = regexp.MustCompile(`^\x1b\[([0-9;]*)m`)

func attributes(codes string) string {
	if n, ok := strings.CutPrefix(codes, "38;5;"); ok {
		c, _ := strconv.Atoi(n) // the sequence contains only digits
		level := func(v int) int { return []int{0, 95, 135, 175, 215, 255}[max(0, v)%6] }
		c -= 16
		return fmt.Sprintf(` fill="#%02x%02x%02x"`, level(c/36), level(c/6%6), level(c%6))
	}
	return map[string]string{
		"1": ` font-weight="bold" fill="#ffffff"`, "2": ` fill="#8b96a3"`, "31": ` fill="#f2837b"`, "32": ` fill="#57c79a"`, "33": ` fill="#e3ac4f"`,
	}[codes]
}

// words matches text without consecutive spaces, because a browser collapses consecutive spaces.
var words = regexp.MustCompile(`[^ ]+(?: [^ ]+)*`)

// draw draws text at a column and returns the text's width in columns. It draws the blocks of a
// progress bar as rectangles, because many fonts leave gaps between blocks.
func draw(out *bytes.Buffer, at, y int, text, style string) int {
	for _, span := range words.FindAllStringIndex(text, -1) {
		word := text[span[0]:span[1]]
		x, width := margin+(at+utf8.RuneCountInString(text[:span[0]]))*column, utf8.RuneCountInString(word)*column
		switch {
		case strings.Trim(word, "█") == "":
			fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d"%s/>`+"\n", x, y+2, width, row-5, style)
		case strings.Trim(word, "░") == "":
			fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" fill="#2c343e"/>`+"\n", x, y+2, width, row-5)
		default:
			fmt.Fprintf(out, `<text x="%d" y="%d" textLength="%d"%s>%s</text>`+"\n", x, y+13, width, style, html.EscapeString(word))
		}
	}
	return utf8.RuneCountInString(text)
}

// Check compares a picture with the file at path. If update is set, it writes the file instead.
func Check(t *testing.T, path string, picture []byte, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(path, picture, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	had, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(had, picture) {
		t.Errorf("%s is not what the program shows: go test this package with -update, and look at it", path)
	}
}
