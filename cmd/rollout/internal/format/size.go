package format

import (
	"fmt"
	"strconv"
	"strings"
)

var sizes = []struct {
	unit  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}}

// ParseSize parses "256MiB", "1GB" or a plain number of bytes.
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

// Size formats n without rounding. It is the inverse of ParseSize.
func Size(n int64) string {
	for _, u := range sizes {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.unit
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}
