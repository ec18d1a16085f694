package chat

import (
	"fmt"
	"strings"
	"time"
)

// Strftime formats like Python's datetime.strftime in the C locale, for directives that mean the
// same on all platforms. A naive time has no zone, so %z and %Z print nothing.
func Strftime(t time.Time, format string) (string, error) {
	if strings.IndexByte(format, 0) >= 0 {
		return "", fmt.Errorf("%w: NUL in a strftime format", ErrUnsupported)
	}
	var b strings.Builder
	for text, d := range directives(format) {
		if d.letter == 0 {
			b.WriteString(text)
			continue
		}
		s, ok := directive(t, d.letter, d.pad)
		if !ok {
			return "", fmt.Errorf("%w: strftime directive %q", ErrUnsupported, text)
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// ClockUnit returns the time unit of a format: a day, an hour, a minute, a second or a microsecond.
// The output changes only at multiples of the unit, on the clock that the format prints.
func ClockUnit(format string) time.Duration {
	unit := 24 * time.Hour
	for _, d := range directives(format) {
		switch d.letter {
		case 'H', 'k', 'I', 'l', 'p', 'P':
			unit = min(unit, time.Hour)
		case 'M', 'R':
			unit = min(unit, time.Minute)
		case 'S', 'T', 'X', 'r', 'c':
			unit = min(unit, time.Second)
		case 'f':
			unit = time.Microsecond
		}
	}
	return unit
}

// A formatDirective is a letter after a percent sign and the padding of its number. Padding 0 is
// the default. Letter 0 means plain text.
type formatDirective struct{ letter, pad byte }

// directives splits a format into its directives and the text between them.
func directives(format string) func(yield func(string, formatDirective) bool) {
	return func(yield func(string, formatDirective) bool) {
		for len(format) > 0 {
			n, d := len(format), formatDirective{}
			switch at := strings.IndexByte(format, '%'); {
			case at > 0:
				n = at
			case at < 0 || n == 1: // Python prints a single percent sign at the end
			default:
				if d.letter, n = format[1], 2; len(format) > 2 && (d.letter == '-' || d.letter == '_' || d.letter == '0') {
					d.pad, d.letter, n = d.letter, format[2], 3
				}
			}
			if !yield(format[:n], d) {
				return
			}
			format = format[n:]
		}
	}
}

// layouts has the directives that Go's time package formats.
var layouts = map[byte]string{
	'A': "Monday", 'a': "Mon", 'B': "January", 'b': "Jan", 'h': "Jan", 'p': "PM", 'P': "pm",
	'D': "01/02/06", 'x': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05", 'X': "15:04:05", 'R': "15:04",
	'r': "03:04:05 PM", 'c': "Mon Jan _2 15:04:05 2006",
}

func directive(t time.Time, c, pad byte) (string, bool) {
	num := func(n, width int, fill byte) (string, bool) {
		switch pad {
		case '-':
			return fmt.Sprint(n), true
		case '_':
			fill = ' '
		case '0':
			fill = '0'
		}
		if fill == ' ' {
			return fmt.Sprintf("%*d", width, n), true
		}
		return fmt.Sprintf("%0*d", width, n), true
	}
	hour12 := (t.Hour()+11)%12 + 1
	switch c {
	case 'Y':
		return fmt.Sprint(t.Year()), true
	case 'C':
		return num(t.Year()/100, 2, '0')
	case 'y':
		return num(t.Year()%100, 2, '0')
	case 'm':
		return num(int(t.Month()), 2, '0')
	case 'd':
		return num(t.Day(), 2, '0')
	case 'e':
		return num(t.Day(), 2, ' ')
	case 'H':
		return num(t.Hour(), 2, '0')
	case 'k':
		return num(t.Hour(), 2, ' ')
	case 'I':
		return num(hour12, 2, '0')
	case 'l':
		return num(hour12, 2, ' ')
	case 'M':
		return num(t.Minute(), 2, '0')
	case 'S':
		return num(t.Second(), 2, '0')
	case 'j':
		return num(t.YearDay(), 3, '0')
	case 'u':
		return num((int(t.Weekday())+6)%7+1, 1, '0')
	case 'w':
		return num(int(t.Weekday()), 1, '0')
	case 'U':
		return num((t.YearDay()+6-int(t.Weekday()))/7, 2, '0')
	case 'W':
		return num((t.YearDay()+6-(int(t.Weekday())+6)%7)/7, 2, '0')
	case 'V':
		_, w := t.ISOWeek()
		return num(w, 2, '0')
	case 'G':
		y, _ := t.ISOWeek()
		return fmt.Sprint(y), true
	}
	if pad != 0 {
		return "", false
	}
	if layout, ok := layouts[c]; ok {
		return t.Format(layout), true
	}
	switch c {
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case 'z', 'Z':
		return "", true
	case '%':
		return "%", true
	}
	return "", false
}
