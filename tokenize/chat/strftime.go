package chat

import (
	"fmt"
	"strings"
	"time"
)

// strftime formats a time like Python's datetime.strftime in the C locale, for
// the directives that mean the same everywhere. A naive time has no zone, so %z
// and %Z give nothing.
func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		pad := byte(0)
		if c := format[i]; (c == '-' || c == '_' || c == '0') && i+1 < len(format) {
			pad = c
			i++
		}
		if s, ok := directive(t, format[i], pad); ok {
			b.WriteString(s)
			continue
		}
		return "", fmt.Errorf("%w: strftime directive %%%c", ErrUnsupported, format[i])
	}
	return b.String(), nil
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
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
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
	switch c {
	case 'B':
		return t.Format("January"), true
	case 'b', 'h':
		return t.Format("Jan"), true
	case 'A':
		return t.Format("Monday"), true
	case 'a':
		return t.Format("Mon"), true
	case 'p':
		return t.Format("PM"), true
	case 'P':
		return t.Format("pm"), true
	case 'D', 'x':
		return t.Format("01/02/06"), true
	case 'F':
		return t.Format("2006-01-02"), true
	case 'T', 'X':
		return t.Format("15:04:05"), true
	case 'R':
		return t.Format("15:04"), true
	case 'r':
		return t.Format("03:04:05 PM"), true
	case 'c':
		return t.Format("Mon Jan _2 15:04:05 2006"), true
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
