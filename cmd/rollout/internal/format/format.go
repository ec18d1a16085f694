// Package format formats numbers, sizes, durations and JSON, wraps lines, quotes paths for a shell,
// and suggests the nearest word.
package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/collector/letta/spelling"
	"github.com/rollout-rl/rollout/collector/pace"
)

// Count formats a number, such as 1,234. It formats numbers from 100,000 on as 123k or 1.23M.
func Count(n int64) string {
	switch {
	case n < 0:
		return "-" + Count(-n)
	case n < 100_000:
		s := strconv.FormatInt(n, 10)
		if n >= 1000 {
			s = s[:len(s)-3] + "," + s[len(s)-3:]
		}
		return s
	default:
		return unit(float64(n), "", "")
	}
}

// Bytes formats a size, such as 512 B or 1.23 MB.
func Bytes(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	return unit(float64(n), " ", "B")
}

// Rate formats a rate, such as 0.25, 12.5, 1,250 or 1.25M.
func Rate(f float64) string {
	switch {
	case f < 10:
		return strconv.FormatFloat(f, 'f', 2, 64)
	case f < 100:
		return strconv.FormatFloat(f, 'f', 1, 64)
	default:
		return Count(int64(f + 0.5))
	}
}

// unit formats f with a decimal prefix, such as k. The number f must be at least 1000. The
// parameters before and after are the text on the two sides of the prefix.
func unit(f float64, before, after string) string {
	const prefixes = "kMGT"
	i := -1
	for f >= 999.5 && i+1 < len(prefixes) {
		f /= 1000
		i++
	}
	digits := 0
	if f < 9.995 {
		digits = 2
	} else if f < 99.95 {
		digits = 1
	}
	return strconv.FormatFloat(f, 'f', digits, 64) + before + prefixes[i:i+1] + after
}

// Duration formats a duration, such as 0.42s, 12.3s, 1m05s or 2h03m.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + "s"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}

// Percent formats part/whole as a percentage, such as 12.3%. It returns 0% if whole is 0.
func Percent(part, whole int64) string {
	if whole == 0 {
		return "0%"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64) + "%"
}

// Share returns part/whole, or 0 if whole is 0.
func Share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// PerSecond returns n/seconds, or 0 if seconds is not positive.
func PerSecond(n int, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}

// Columns returns the width of a line on a terminal, ignoring color codes.
func Columns(line string) int {
	n := 0
	for rest := line; rest != ""; {
		if code, after, ok := strings.Cut(rest, "m"); ok && strings.HasPrefix(code, "\x1b[") {
			rest = after
			continue
		}
		_, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		n++
	}
	return n
}

// Fold breaks lines that are longer than width. The breaks are at spaces. It indents the
// continuation lines.
func Fold(text string, width, indent int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		for Columns(line) > width+1 { // the 1 is for the line break
			at, seen := 0, 0
			for i, r := range line {
				if seen > width {
					break
				}
				if r == ' ' && seen > indent {
					at = i
				}
				seen++
			}
			if at == 0 {
				break // a word is too long
			}
			b.WriteString(line[:at] + "\n")
			line = strings.Repeat(" ", indent) + line[at+1:]
		}
		b.WriteString(line)
	}
	return b.String()
}

// Plural returns a count with its noun, such as "1 place" or "2 places".
func Plural(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + one + "s"
}

// Lags formats a histogram of lags. counts[i] is the number of groups with lag i. The bucket
// pace.LagMost includes all higher lags. Lags returns "" if all counts are 0.
func Lags(counts []int) string {
	var parts []string
	for lag, n := range counts {
		more := ""
		if lag == pace.LagMost {
			more = " or more"
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d%s: %s", lag, more, Plural(int64(n), "group")))
		}
	}
	return strings.Join(parts, ", ")
}

var sizes = []struct {
	unit  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}}

// ParseSize parses a size such as "256MiB" or "1GB", or a plain number of bytes.
func ParseSize(s string) (int64, error) {
	number, factor := s, int64(1)
	for _, u := range sizes {
		if rest, ok := strings.CutSuffix(s, u.unit); ok {
			number, factor = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n < 0 || n*float64(factor) > 1<<62 {
		return 0, fmt.Errorf("%q is not a size (want 256MiB or 1GB)", s)
	}
	return int64(n * float64(factor)), nil
}

// Size formats a number of bytes without rounding. It is the inverse of ParseSize.
func Size(n int64) string {
	for _, u := range sizes {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.unit
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// CompactJSON returns a JSON value without insignificant white space.
func CompactJSON(v json.RawMessage) json.RawMessage {
	if v == nil {
		return nil
	}
	var out bytes.Buffer
	if json.Compact(&out, v) != nil {
		return v // cannot happen: v came from a decoder
	}
	return out.Bytes()
}

// JSONLine encodes v as JSON on one line, without HTML escaping.
func JSONLine(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	err := NewJSONEncoder(&out).Encode(v)
	return bytes.TrimSpace(out.Bytes()), err
}

// NewJSONEncoder returns an encoder that does not escape HTML.
func NewJSONEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

// maxWord is the maximum length, in bytes, of words that are compared. The limit exists because a
// comparison takes quadratic time.
const maxWord = 100

// NearestOf returns the entry of words that is nearest to word, or "" if none is near. If several
// words are equally near, it returns the first. A word is near if its edit distance is at most 3
// and at most 1 + len(word)/3.
func NearestOf(word string, words iter.Seq[string]) string {
	best, at := min(3, 1+len(word)/3)+1, ""
	if len(word) > maxWord {
		return ""
	}
	for w := range words {
		if len(w) > maxWord {
			continue
		}
		if d := spelling.Distance(word, w); d < best {
			best, at = d, w
		}
	}
	return at
}

// Nearest is like [NearestOf], but takes a slice.
func Nearest(word string, words []string) string { return NearestOf(word, slices.Values(words)) }

// DidYouMean returns the given prefix, followed by "did you mean WORD?". WORD is the entry of words
// that is nearest to word. If no entry is near, DidYouMean returns "".
func DidYouMean(before, word string, words []string) string {
	near := Nearest(word, words)
	if near == "" {
		return ""
	}
	return before + "did you mean " + near + "?"
}
