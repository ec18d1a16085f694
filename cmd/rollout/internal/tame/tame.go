// Package tame makes text fit to be shown, whoever wrote it: a server, a model, a task,
// a file, or the name of a folder. Such text could move the cursor of a terminal, set
// its title, recolour or hide what stands there, turn the reading direction around, or
// begin a line that looks like one of ours.
//
// [Text] is the one function that decides what may be shown. What is not a letter, a
// mark, a number, punctuation, a symbol or a space of some kind is written as an escape
// that can be seen, as JSON has it:
//
//	ESC, other C0 and C1 controls, DEL        \u001b
//	direction and other format controls       \u202e  (all but the two joiners)
//	line and paragraph separators             \u2028
//	private and unassigned code points        \ue000
//	bytes that are not UTF-8                  \xff
//	breaks of lines, tabs                     a space
//
// Two doors lead to it, and everything that the command prints goes through both:
//
//   - [Fprintf] and [Sprintf] do it for their operands. What is ours is in the format,
//     or has the type [Own].
//   - A [Writer] stands before standard output, standard error, logs and pages. It knows
//     no operands, so it lets breaks of lines and tabs pass, and escapes whatever else
//     was forgotten. Its escapes are those of JSON, so JSON stays valid and the same.
package tame

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxText is how many characters of an operand are shown.
const MaxText = 4096

// Text is s on one line, with escapes for what cannot be shown, and cut to width
// characters, the last of them an ellipsis.
func Text(s string, width int) string {
	if len(s) <= width && isFit(s) {
		return s
	}
	s = strings.TrimRight(s, "\r\n") // an end of a line at the end says nothing
	out := make([]byte, 0, min(len(s), 4*width)+16)
	left := width
	for s != "" {
		r, size := utf8.DecodeRuneInString(s)
		at := len(out)
		switch r {
		case '\n', '\r':
			out = append(out, ' ')
			size = len(s) - len(strings.TrimLeft(s, " \t\r\n")) // and so does what indents the next
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

// isFit reports whether s is ASCII without controls, as most is.
func isFit(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// appendShown appends a character, or the escape that stands for it.
func appendShown(out []byte, piece string, r rune) []byte {
	switch {
	case r == utf8.RuneError && len(piece) == 1:
		return fmt.Appendf(out, `\x%02x`, piece[0])
	case unicode.IsGraphic(r), r == '\u200c', r == '\u200d': // words of some scripts, and emoji, need the joiners
		return append(out, piece...)
	case r > 0xffff:
		high, low := utf16.EncodeRune(r)
		return fmt.Appendf(out, `\u%04x\u%04x`, high, low)
	default:
		return fmt.Appendf(out, `\u%04x`, r)
	}
}

// Own is text of ours, made of what Text gave: it may have several lines and colours.
type Own string

// Fprintf is fmt.Fprintf with operands that are fit to be shown, whatever their kind.
// A writer that fails is for who closes it to find.
func Fprintf(w io.Writer, format string, args ...any) {
	operands(args)
	_, _ = fmt.Fprintf(w, format, args...)
}

// Sprintf is fmt.Sprintf likewise.
func Sprintf(format string, args ...any) string {
	operands(args)
	return fmt.Sprintf(format, args...)
}

// operands takes care of all that may hold text. Numbers stay, as widths have to.
func operands(args []any) {
	for i, a := range args {
		switch a.(type) {
		case Own, operand, bool, int, int32, int64, uint, uint32, uint64, float32, float64:
		default:
			args[i] = operand{a}
		}
	}
}

// An operand is shown as Text shows what fmt makes of it.
type operand struct{ v any }

// Format is fmt.Formatter's.
func (o operand) Format(f fmt.State, verb rune) {
	_, _ = io.WriteString(f, Text(fmt.Sprintf(fmt.FormatString(f, verb), o.v), MaxText))
}
