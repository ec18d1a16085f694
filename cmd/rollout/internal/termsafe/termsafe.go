// Package termsafe escapes untrusted text for display: text from a server, a model, a task, a file
// or a folder name. Without escaping, such text could move the terminal's cursor, set its title,
// hide or recolor output, reverse the reading direction, or imitate a line that the program prints.
//
// [Text] leaves letters, marks, numbers, punctuation, symbols and spaces unchanged. Every other
// character becomes a visible escape in JSON notation:
//
//	ESC, other C0 and C1 controls, DEL        \u001b
//	direction and other format controls       \u202e  (except the two joiners)
//	line and paragraph separators             \u2028
//	private and unassigned code points        \ue000
//	bytes that are not UTF-8                  \xff
//	line breaks, tabs                         a space
//
// All output of the command passes through two layers:
//
//   - [Fprintf] and [Sprintf] escape their operands. The format and operands of type [Own]
//     are trusted.
//   - A [Writer] wraps standard output, standard error, logs and pages. It cannot distinguish
//     operands from the format, so it keeps line breaks and tabs, and escapes everything else. It
//     uses JSON escapes, so JSON output keeps its value.
package termsafe

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxText is the maximum length of an operand, in characters.
const MaxText = 4096

// Text returns s on one line with escapes, truncated to width characters. If s is truncated, the
// last character is an ellipsis.
func Text(s string, width int) string {
	if len(s) <= width && isFit(s) {
		return s
	}
	s = strings.TrimRight(s, "\r\n") // drop trailing line breaks
	out := make([]byte, 0, min(len(s), 4*width)+16)
	left := width
	for s != "" {
		r, size := utf8.DecodeRuneInString(s)
		at := len(out)
		switch r {
		case '\n', '\r':
			out = append(out, ' ')
			size = len(s) - len(strings.TrimLeft(s, " \t\r\n")) // also drop the indentation of the next line
		case '\t':
			out = append(out, ' ')
		default:
			out = appendShown(out, s[:size], r)
		}
		s = s[size:]
		n := utf8.RuneCount(out[at:])
		if n > left || n == left && s != "" {
			out = out[:at]
			if left > 0 {
				out = append(out, "…"...)
			}
			break
		}
		left -= n
	}
	return string(out)
}

// isFit reports whether s consists of printable ASCII characters. Most text does.
func isFit(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func appendShown(out []byte, piece string, r rune) []byte {
	switch {
	case r == utf8.RuneError && len(piece) == 1:
		return fmt.Appendf(out, `\x%02x`, piece[0])
	case unicode.IsGraphic(r), r == '\u200c', r == '\u200d': // some scripts and emoji need the joiners
		return append(out, piece...)
	case r > 0xffff:
		high, low := utf16.EncodeRune(r)
		return fmt.Appendf(out, `\u%04x\u%04x`, high, low)
	default:
		return fmt.Appendf(out, `\u%04x`, r)
	}
}

// Own is trusted text that was built from results of Text. It can contain line breaks and colors.
type Own string

// Fprintf is like fmt.Fprintf, but escapes the operands. It ignores write errors, because the owner
// of w reports them.
func Fprintf(w io.Writer, format string, args ...any) {
	operands(args)
	_, _ = fmt.Fprintf(w, format, args...)
}

// Sprintf is like fmt.Sprintf, but escapes the operands.
func Sprintf(format string, args ...any) string {
	operands(args)
	return fmt.Sprintf(format, args...)
}

// operands wraps every argument that can contain text. It does not wrap numbers, because they can
// be widths.
func operands(args []any) {
	for i, a := range args {
		switch a.(type) {
		case Own, operand, bool, int, int32, int64, uint, uint32, uint64, float32, float64:
		default:
			args[i] = operand{a}
		}
	}
}

// An operand formats its value with fmt and then escapes it with Text.
type operand struct{ v any }

// Format implements fmt.Formatter.
func (o operand) Format(f fmt.State, verb rune) {
	_, _ = io.WriteString(f, Text(fmt.Sprintf(fmt.FormatString(f, verb), o.v), MaxText))
}
