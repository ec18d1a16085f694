package chat

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A fieldSpec is the format of one value, for % or str.format.
type fieldSpec struct {
	fill      string // one character, or empty for the default
	align     byte   // '<', '>', '^', '=', or 0
	sign      byte   // '+', ' ' or '-'
	alt, zero bool
	width     int
	prec      int  // -1 if absent
	verb      byte // 0 if absent
}

// maxField bounds widths and precisions, because the template chooses them.
const maxField = 1 << 20

// percent evaluates text % value.
func (r *run) percent(v, arg Value) (Value, error) {
	list := []Value{arg}
	if arg.kind == Tuple {
		list = arg.Items()
	}
	markup := v.kind == Markup
	dict := arg.Map()
	// As in Python, surplus arguments are allowed for a value with __getitem__.
	_, isRange := arg.ref.(*interval)
	mapped := dict != nil || arg.kind == List || arg.kind == Undefined || isRange
	b := textBuilder{r: r}
	next := 0
	take := func() (Value, error) {
		if next >= len(list) {
			return Value{}, typeErrorf("not enough arguments for format string")
		}
		next++
		return list[next-1], nil
	}
	s := v.s
	for i := 0; i < len(s); {
		if s[i] != '%' {
			j := strings.IndexByte(s[i:], '%')
			if j < 0 {
				j = len(s) - i
			}
			if err := b.add(s[i : i+j]); err != nil {
				return v, err
			}
			i += j
			continue
		}
		i++
		f := fieldSpec{prec: -1}
		var x Value
		if i < len(s) && s[i] == '(' {
			if dict == nil {
				return v, typeErrorf("format requires a mapping")
			}
			depth, j := 1, i+1
			for ; j < len(s) && depth > 0; j++ {
				switch s[j] {
				case '(':
					depth++
				case ')':
					depth--
				}
			}
			if depth > 0 {
				return v, valueErrorf("incomplete format key")
			}
			at, err := r.find(dict, strOf(s[i+1:j-1]))
			if err != nil {
				return v, err
			}
			if at < 0 {
				return v, valueErrorf("missing key in the arguments of a format string")
			}
			x = dict.vals[at]
			// The remaining arguments are only this value.
			list, next = []Value{x}, 0
			i = j
		}
		for flag := true; flag && i < len(s); {
			switch s[i] {
			case '-':
				f.align = '<'
			case '+':
				f.sign = '+'
			case ' ':
				if f.sign == 0 {
					f.sign = ' '
				}
			case '#':
				f.alt = true
			case '0':
				f.zero = true
			default:
				flag = false
				continue
			}
			i++
		}
		number := func() (int, error) {
			if i < len(s) && s[i] == '*' {
				i++
				w, err := take()
				if err != nil {
					return 0, err
				}
				n, ok := w.small()
				if !ok {
					return 0, typeErrorf("* wants int")
				}
				if n > maxField || n < -maxField {
					return 0, limitErrorf("field width of %d characters", n)
				}
				return int(n), nil
			}
			n := 0
			for i < len(s) && isDecimal(s[i]) {
				if n = n*10 + int(s[i]-'0'); n > maxField {
					return 0, limitErrorf("field width of more than %d characters", maxField)
				}
				i++
			}
			return n, nil
		}
		var err error
		if f.width, err = number(); err != nil {
			return v, err
		}
		if f.width < 0 {
			f.align, f.width = '<', -f.width
		}
		if i < len(s) && s[i] == '.' {
			i++
			if f.prec, err = number(); err != nil {
				return v, err
			}
			f.prec = max(f.prec, 0)
		}
		if i < len(s) && (s[i] == 'h' || s[i] == 'l' || s[i] == 'L') {
			i++
		}
		if i >= len(s) {
			return v, valueErrorf("incomplete format")
		}
		f.verb = s[i]
		i++
		if f.verb == '%' {
			if err := b.add("%"); err != nil {
				return v, err
			}
			continue
		}
		if x, err = take(); err != nil {
			return v, err
		}
		text, err := r.percentField(x, f, markup)
		if err != nil {
			return v, err
		}
		if err := r.step(); err != nil {
			return v, err
		}
		if err := b.add(text); err != nil {
			return v, err
		}
	}
	if next < len(list) && !mapped {
		return v, typeErrorf("not all arguments converted during string formatting")
	}
	return r.like(v, string(b.b))
}

func (r *run) percentField(x Value, f fieldSpec, markup bool) (string, error) {
	switch f.verb {
	case 's', 'r', 'a':
		var s string
		var err error
		if f.verb == 's' {
			s, err = r.text(x)
		} else {
			s, err = r.repr(x, f.verb == 'a')
		}
		if err != nil {
			return "", err
		}
		if markup && (x.kind != Markup || f.verb != 's') {
			if s, err = r.escape(s); err != nil {
				return "", err
			}
		}
		if f.prec >= 0 {
			s = s[:byteOffset(s, f.prec)]
		}
		return pad(s, f, '>'), nil
	case 'c':
		switch {
		case x.isStr() && utf8.RuneCountInString(x.s) == 1 && !markup:
			return pad(x.s, f, '>'), nil
		case x.isInt() && !markup:
			if n, ok := x.small(); ok && n >= 0 && n <= utf8.MaxRune && (n < 0xD800 || n >= 0xE000) {
				return pad(string(rune(n)), f, '>'), nil
			}
			return "", valueErrorf("%%c arg not in range")
		}
		return "", typeErrorf("%%c requires int or char")
	case 'd', 'i', 'u', 'o', 'x', 'X':
		if x.kind == Float && f.verb != 'o' && f.verb|0x20 != 'x' {
			fl := x.float()
			if math.IsNaN(fl) || math.IsInf(fl, 0) {
				return "", valueErrorf("cannot convert float to integer")
			}
			x = truncFloat(fl)
		}
		if !x.isInt() || markup && f.verb != 'd' && f.verb != 'i' && f.verb != 'u' {
			return "", typeErrorf("%%%c format: a number is required, not %s", f.verb, typeName(x))
		}
		if err := r.pay(x.big().BitLen()>>5+f.prec>>4, x.big().BitLen()); err != nil {
			return "", err
		}
		return r.percentInt(x.big(), f)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if markup && x.isStr() {
			y, ok := parseFloat(x.s)
			if !ok {
				return "", valueErrorf("could not convert string to float")
			}
			x = FloatValue(y)
		}
		if !isNumber(x) {
			return "", typeErrorf("must be real number, not %s", typeName(x))
		}
		y, err := toFloat(x)
		if err != nil {
			return "", err
		}
		if err := r.pay(max(f.prec, 0)>>4, 2*max(f.prec, 0)); err != nil {
			return "", err
		}
		sign, digits := floatDigits(y, f)
		return padNumber(sign, "", digits, f), nil
	}
	return "", valueErrorf("unsupported format character '%c'", f.verb)
}

// repr is Python's repr(v), or ascii(v).
func (r *run) repr(v Value, ascii bool) (string, error) {
	s, err := r.made(func(dst []byte) ([]byte, error) { return r.appendRepr(dst, v, 0) })
	if err != nil || !ascii {
		return s, err
	}
	if err := r.make(times(len(s), 6)); err != nil {
		return "", err
	}
	return asciiOnly(s), nil
}

func asciiOnly(s string) string {
	b := make([]byte, 0, len(s))
	for _, c := range s {
		switch {
		case c < utf8.RuneSelf:
			b = append(b, byte(c))
		case c < 0x100:
			b = appendHex(b, `\x`, c, 2)
		case c < 0x10000:
			b = appendHex(b, `\u`, c, 4)
		default:
			b = appendHex(b, `\U`, c, 8)
		}
	}
	return string(b)
}

func (r *run) percentInt(n *big.Int, f fieldSpec) (string, error) {
	base, prefix := 10, ""
	switch f.verb {
	case 'o':
		base, prefix = 8, "0o"
	case 'x':
		base, prefix = 16, "0x"
	case 'X':
		base, prefix = 16, "0X"
	}
	if !f.alt {
		prefix = ""
	}
	digits := ""
	if abs := new(big.Int).Abs(n); base != 10 {
		digits = abs.Text(base)
	} else {
		var err error
		if digits, err = r.decimal(abs); err != nil {
			return "", err
		}
	}
	if f.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	if f.prec > len(digits) {
		digits = strings.Repeat("0", f.prec-len(digits)) + digits
	}
	sign := ""
	switch {
	case n.Sign() < 0:
		sign = "-"
	case f.sign != 0:
		sign = string(f.sign)
	}
	return padNumber(sign, prefix, digits, f), nil
}

// floatDigits formats a float with e, f, g or their capitals, like C's printf.
func floatDigits(y float64, f fieldSpec) (sign, digits string) {
	prec := f.prec
	if prec < 0 {
		prec = 6
	}
	switch {
	case math.Signbit(y) && !math.IsNaN(y):
		sign = "-"
	case f.sign == '+' || f.sign == ' ':
		sign = string(f.sign)
	}
	y = math.Abs(y)
	upper := f.verb >= 'A' && f.verb <= 'Z'
	switch {
	case math.IsNaN(y):
		digits = "nan"
	case math.IsInf(y, 0):
		digits = "inf"
	default:
		switch f.verb | 0x20 {
		case 'f':
			digits = strconv.FormatFloat(y, 'f', prec, 64)
			if f.alt && prec == 0 {
				digits += "."
			}
		case 'e':
			digits = strconv.FormatFloat(y, 'e', prec, 64)
			if f.alt && prec == 0 {
				digits = strings.Replace(digits, "e", ".e", 1)
			}
		default:
			digits = generalDigits(y, max(prec, 1), f.alt)
		}
	}
	if upper {
		digits = strings.ToUpper(digits)
	}
	return sign, digits
}

func generalDigits(y float64, prec int, alt bool) string {
	e := strconv.FormatFloat(y, 'e', prec-1, 64)
	mark := strings.IndexByte(e, 'e')
	exp, _ := strconv.Atoi(e[mark+1:])
	if exp < -4 || exp >= prec {
		mant := e[:mark]
		if !alt && strings.IndexByte(mant, '.') >= 0 {
			mant = strings.TrimRight(strings.TrimRight(mant, "0"), ".")
		} else if alt && strings.IndexByte(mant, '.') < 0 {
			mant += "."
		}
		return mant + e[mark:]
	}
	s := strconv.FormatFloat(y, 'f', prec-1-exp, 64)
	if !alt && strings.IndexByte(s, '.') >= 0 {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	} else if alt && strings.IndexByte(s, '.') < 0 {
		s += "."
	}
	return s
}

func pad(s string, f fieldSpec, align byte) string {
	n := f.width - utf8.RuneCountInString(s)
	if n <= 0 {
		return s
	}
	if f.align != 0 {
		align = f.align
	}
	fill := f.fill
	if fill == "" {
		fill = " "
	}
	switch align {
	case '<':
		return s + strings.Repeat(fill, n)
	case '^':
		return strings.Repeat(fill, n/2) + s + strings.Repeat(fill, n-n/2)
	}
	return strings.Repeat(fill, n) + s
}

// padNumber pads a number, with zeros after the sign if the format requires it.
func padNumber(sign, prefix, digits string, f fieldSpec) string {
	if f.zero && f.align == 0 {
		n := f.width - len(sign) - len(prefix) - len(digits)
		return sign + prefix + strings.Repeat("0", max(n, 0)) + digits
	}
	return pad(sign+prefix+digits, f, '>')
}

func strFormatMap(r *run, v Value, a args) (Value, error) {
	if err := a.only("format_map", 1, 1); err != nil {
		return v, err
	}
	m := a.pos[0].Map()
	if m == nil {
		return v, typeErrorf("%w: format_map of %s", ErrUnsupported, typeName(a.pos[0]))
	}
	kw := make([]keyword, 0, m.Len())
	for i, k := range m.keys {
		if k.isStr() {
			kw = append(kw, keyword{k.s, m.vals[i]})
		}
	}
	return strFormat(r, v, args{kw: kw})
}

// strFormat is str.format without specifications after the colon. Templates use none.
func strFormat(r *run, v Value, a args) (Value, error) {
	b := textBuilder{r: r}
	s := v.s
	auto, manual := 0, false
	for i := 0; i < len(s); {
		c := s[i]
		plain, skip := 0, 0
		switch {
		case c != '{' && c != '}':
			plain = strings.IndexAny(s[i:], "{}")
			if plain < 0 {
				plain = len(s) - i
			}
			skip = plain
		case i+1 < len(s) && s[i+1] == c:
			plain, skip = 1, 2
		}
		if plain > 0 {
			if err := r.pay(1+plain>>4, 0); err != nil {
				return v, err
			}
			if err := b.add(s[i : i+plain]); err != nil {
				return v, err
			}
			i += skip
			continue
		}
		if c == '}' {
			return v, valueErrorf("single '}' encountered in format string")
		}
		end := strings.IndexAny(s[i+1:], "{}")
		if end < 0 {
			return v, valueErrorf("expected '}' before end of string")
		}
		field := s[i+1 : i+1+end]
		if s[i+1+end] == '{' {
			return v, typeErrorf("%w: nested fields in a format string", ErrUnsupported)
		}
		i += end + 2
		if err := r.pay(1+len(field)>>4+len(a.kw)>>2, 0); err != nil {
			return v, err
		}
		x, err := r.formatField(field, a, &auto, &manual)
		if err == nil && v.kind == Markup {
			x, err = r.escape(x)
		}
		if err == nil {
			err = b.add(x)
		}
		if err != nil {
			return v, err
		}
	}
	return r.like(v, string(b.b))
}

func (r *run) formatField(field string, a args, auto *int, manual *bool) (string, error) {
	if i := strings.IndexByte(field, ':'); i >= 0 {
		if field[i+1:] != "" {
			return "", typeErrorf("%w: format specification %s", ErrUnsupported, quote(field[i+1:]))
		}
		field = field[:i]
	}
	conv := byte(0)
	if i := strings.IndexByte(field, '!'); i >= 0 {
		if len(field) != i+2 {
			return "", valueErrorf("bad conversion in a format string")
		}
		conv = field[i+1]
		field = field[:i]
	}
	if strings.ContainsAny(field, ".[") {
		return "", typeErrorf("%w: attributes in a format string", ErrUnsupported)
	}
	var x Value
	n, err := strconv.Atoi(field)
	switch {
	case field == "":
		if *manual {
			return "", valueErrorf("cannot switch from manual field specification to automatic field numbering")
		}
		n = *auto
		*auto++
		fallthrough
	case err == nil && n >= 0:
		if field != "" {
			if *auto > 0 {
				return "", valueErrorf("cannot switch from automatic field numbering to manual field specification")
			}
			*manual = true
		}
		if n >= len(a.pos) {
			return "", valueErrorf("replacement index %d out of range for positional args tuple", n)
		}
		x = a.pos[n]
	default:
		var ok bool
		if x, ok = a.keyword(field); !ok {
			return "", valueErrorf("missing key in the arguments of a format string")
		}
	}
	switch conv {
	case 0, 's':
		return r.text(x)
	case 'r', 'a':
		return r.repr(x, conv == 'a')
	}
	return "", valueErrorf("unknown conversion specifier '%c'", conv)
}
