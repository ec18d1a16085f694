package chat

import (
	"strings"
	"time"
)

// layouts holds the supported directives of strftime, as layouts of Go's time package. They mean the
// same on all platforms.
var layouts = map[byte]string{
	'%': "%", 'A': "Monday", 'B': "January", 'D': "01/02/06", 'F': "2006-01-02", 'H': "15", 'I': "03", 'M': "04",
	'R': "15:04", 'S': "05", 'T': "15:04:05", 'Y': "2006", 'a': "Mon", 'b': "Jan", 'd': "02", 'j': "002", 'm': "01",
	'p': "PM", 'y': "06",
}

// Strftime formats like Python's datetime.strftime in the C locale.
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
		if directive == "" || layouts[directive[0]] == "" || plain && !strings.Contains("HIMSdjmy", directive[:1]) {
			return "", unsupportedf("the strftime format %q", "%"+rest)
		}
		s := t.Format(layouts[directive[0]])
		if plain {
			s = strings.TrimLeft(s[:len(s)-1], "0") + s[len(s)-1:]
		}
		b.WriteString(s)
		format = directive[1:]
	}
}

// ClockUnit returns the time unit of a format: a day, an hour, a minute or a second. The output
// changes only at multiples of the unit, on the clock that the format prints.
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
		case 'S', 'T':
			unit = time.Second
		}
	}
	return unit
}
