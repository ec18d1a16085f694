// Package format formats numbers, sizes and durations, wraps lines, quotes paths for a shell, and
// suggests the nearest word.
package format

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Count formats a number as 1,234, or as 123k or 1.23M from 100,000 on.
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
		return unit(float64(n), 1000, "kMGT", "")
	}
}

// Bytes formats a size as 512 B or 1.23 MB.
func Bytes(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	return unit(float64(n), 1000, " k, M, G, T", "B")
}

// Rate formats a rate as 0.25, 12.5, 1,250 or 1.25M.
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

func unit(f, base float64, units, suffix string) string {
	names := strings.Split(units, ",")
	if len(names) == 1 {
		names = strings.Split(units, "")
	}
	i := -1
	for f >= 999.5 && i+1 < len(names) {
		f /= base
		i++
	}
	digits := 0
	if f < 9.995 {
		digits = 2
	} else if f < 99.95 {
		digits = 1
	}
	return strconv.FormatFloat(f, 'f', digits, 64) + names[max(i, 0)] + suffix
}

// Duration formats a duration as 0.42s, 12.3s, 1m05s or 2h03m.
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

// Percent formats part/whole as 12.3%. It returns 0% if whole is 0.
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

// PerSecond returns n/seconds, or 0 if no time has passed.
func PerSecond(n int, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}

// Columns returns the width of a line on a terminal, without its color codes.
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

// Fold breaks lines longer than width at spaces, and indents the continuation lines.
func Fold(text string, width, indent int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		for Columns(line) > width+1 { // plus the line break
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
				break // one word is too long
			}
			b.WriteString(line[:at] + "\n")
			line = strings.Repeat(" ", indent) + line[at+1:]
		}
		b.WriteString(line)
	}
	return b.String()
}

// Plural returns "1 place" or "2 places".
func Plural(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + one + "s"
}

// Lags formats a histogram of lags: counts[i] groups have lag i. The last bucket means that lag or
// more. It returns "" if all counts are 0.
func Lags(counts []int, buckets int) string {
	var parts []string
	for lag, n := range counts {
		more := ""
		if lag == buckets-1 {
			more = " or more"
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d%s: %s", lag, more, Plural(int64(n), "group")))
		}
	}
	return strings.Join(parts, ", ")
}
