package chat

import (
	"strings"
	"time"
)

// layouts maps the supported directives of strftime to layouts of Go's time package. These
// directives have the same meaning on all platforms.
var layouts = map[byte]string{
	'%': "%", 'A': "Monday", 'B': "January", 'D': "01/02/06", 'F': "2006-01-02", 'H': "15", 'I': "03", 'M': "04",
	'R': "15:04", 'S': "05", 'T': "15:04:05", 'X': "15:04:05", 'Y': "2006", 'a': "Mon", 'b': "Jan",
	'c': "Mon Jan _2 15:04:05 2006", 'd': "02", 'e': "_2", 'f': ".000000", 'h': "Jan", 'j': "002", 'm': "01",
	'p': "PM", 'r': "03:04:05 PM", 'x': "01/02/06", 'y': "06",
}

// Strftime formats t as Python's datetime.strftime does in the C locale.
func Strftime(t time.Time, format string) (string, error) {
	if strings.IndexByte(format, 0) >= 0 {
		return "", unsupportedf("NUL in a strftime format")
	}
	var b strings.Builder
	for {
		text, rest, ok := strings.Cut(format, "%")
		b.WriteString(text)
		if !ok {
			return b.String(), nil
		}
		// A hyphen removes the padding of a number.
		directive, plain := strings.CutPrefix(rest, "-")
		if directive == "" || layouts[directive[0]] == "" || plain && !strings.Contains("HIMSdejmy", directive[:1]) {
			return "", unsupportedf("the strftime format %q", "%"+rest)
		}
		s := strings.TrimPrefix(t.Format(layouts[directive[0]]), ".")
		if plain {
			s = strings.TrimLeft(s[:len(s)-1], "0 ") + s[len(s)-1:]
		}
		b.WriteString(s)
		format = directive[1:]
	}
}

// ClockUnit returns the smallest time unit that a format prints: a day, an hour, a minute, a second
// or a microsecond. The output changes only when the printed clock reaches a multiple of the unit.
func ClockUnit(format string) time.Duration {
	unit := 24 * time.Hour
	for i, c := range []byte(format) {
		if i == 0 || format[i-1] != '%' && format[i-1] != '-' {
			continue
		}
		switch c {
		case 'H', 'I', 'p':
			unit = min(unit, time.Hour)
		case 'M', 'R':
			unit = min(unit, time.Minute)
		case 'S', 'T', 'X', 'c', 'r':
			unit = min(unit, time.Second)
		case 'f':
			unit = time.Microsecond
		}
	}
	return unit
}
