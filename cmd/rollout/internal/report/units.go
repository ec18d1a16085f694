package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
)

// This file formats numbers for people, with thousands separators and units.

// nbsp keeps a number and its unit on the same line.
const nbsp = "\u00a0"

// count formats a number with thousands separators, such as 1,234,567.
func count[T int | int64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// amount formats a number of tokens or calls. It omits the decimals of a large number.
func amount(v float64) string {
	if math.Abs(v) >= 100 || v == math.Trunc(v) {
		return count(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

func value(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// seconds formats a duration, such as 0.42 s, 12.3 s, 1 min 05 s or 2 h 03 min.
func seconds(s float64) string {
	switch {
	case s < 9.995:
		return strconv.FormatFloat(s, 'f', 2, 64) + nbsp + "s"
	case s < 59.95:
		return strconv.FormatFloat(s, 'f', 1, 64) + nbsp + "s"
	case s < 3599.5:
		n := int(math.Round(s))
		return fmt.Sprintf("%d%smin %02d%ss", n/60, nbsp, n%60, nbsp)
	default:
		n := int(math.Round(s / 60))
		return fmt.Sprintf("%s%sh %02d%smin", count(n/60), nbsp, n%60, nbsp)
	}
}

// size formats a number of bytes, such as 512 B or 1.23 MB.
func size(n int64) string { return strings.Replace(format.Bytes(n), " ", nbsp, 1) }

// share formats a percentage, such as 12.3 %.
func share(part, whole int) string {
	if whole == 0 {
		return "–"
	}
	p := 100 * float64(part) / float64(whole)
	digits := 1
	if part == 0 || part == whole {
		digits = 0
	}
	text := strconv.FormatFloat(p, 'f', digits, 64)
	switch {
	case part > 0 && text == "0.0":
		text = "<0.1"
	case part < whole && text == "100.0":
		text = ">99.9"
	}
	return text + nbsp + "%"
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + nbsp + "UTC" }
