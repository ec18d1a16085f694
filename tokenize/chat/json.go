package chat

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth is how deep JSON may nest; Python's own limit is close to it.
const maxJSONDepth = 900

// FromJSON reads one JSON value as Python's json.loads does: objects keep the
// order of their keys, of a key that comes twice the last value counts, 1 is an
// int of any size and 1.0 and 1e3 are floats, and NaN, Infinity and -Infinity are
// numbers.
//
// It copies what it needs from data. Half of a surrogate pair and bytes that are
// not UTF-8 are errors: no tokenizer takes them.
func FromJSON(data []byte) (Value, error) { return FromJSONText(string(data)) }

// FromJSONText is FromJSON of a string. It copies nothing but strings with escapes: the
// others are views of text, and keep it in memory.
func FromJSONText(text string) (Value, error) {
	p := &jsonParser{s: text}
	if !utf8.ValidString(p.s) {
		return Value{}, fmt.Errorf("chat: json: not valid UTF-8 at byte %d", invalidAt(p.s))
	}
	p.space()
	v, err := p.value(0)
	if err == nil {
		if p.space(); p.i < len(p.s) {
			err = p.errorf("text behind the value")
		}
	}
	if err != nil {
		return Value{}, fmt.Errorf("chat: json: byte %d: %w", p.i, err)
	}
	return v, nil
}

func invalidAt(s string) int {
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		if c == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(s)
}

type jsonParser struct {
	s string
	i int
}

func (p *jsonParser) errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

func (p *jsonParser) space() {
	for p.i < len(p.s) {
		switch p.s[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

func (p *jsonParser) word(w string) bool {
	if len(p.s)-p.i >= len(w) && p.s[p.i:p.i+len(w)] == w {
		p.i += len(w)
		return true
	}
	return false
}

func (p *jsonParser) value(depth int) (Value, error) {
	if depth > maxJSONDepth {
		return Value{}, p.errorf("nests deeper than %d", maxJSONDepth)
	}
	if p.i >= len(p.s) {
		return Value{}, p.errorf("value expected")
	}
	switch p.s[p.i] {
	case '"':
		s, err := p.str()
		return strOf(s), err
	case '{':
		return p.object(depth)
	case '[':
		return p.array(depth)
	}
	switch {
	case p.word("null"):
		return NoneValue(), nil
	case p.word("true"):
		return BoolValue(true), nil
	case p.word("false"):
		return BoolValue(false), nil
	case p.word("NaN"):
		return FloatValue(math.NaN()), nil
	case p.word("Infinity"):
		return FloatValue(math.Inf(1)), nil
	case p.word("-Infinity"):
		return FloatValue(math.Inf(-1)), nil
	}
	return p.number()
}

func (p *jsonParser) object(depth int) (Value, error) {
	p.i++
	m := NewMap(4)
	p.space()
	if p.word("}") {
		return MapValue(m), nil
	}
	for {
		if p.i >= len(p.s) || p.s[p.i] != '"' {
			return Value{}, p.errorf("name of a member expected")
		}
		k, err := p.str()
		if err != nil {
			return Value{}, err
		}
		if p.space(); !p.word(":") {
			return Value{}, p.errorf("':' expected")
		}
		p.space()
		v, err := p.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		m.set(strOf(k), v)
		p.space()
		if p.word("}") {
			return MapValue(m), nil
		}
		if !p.word(",") {
			return Value{}, p.errorf("',' or '}' expected")
		}
		p.space()
	}
}

func (p *jsonParser) array(depth int) (Value, error) {
	p.i++
	var items []Value
	p.space()
	if p.word("]") {
		return ListValue(), nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		items = append(items, v)
		p.space()
		if p.word("]") {
			return ListValue(items...), nil
		}
		if !p.word(",") {
			return Value{}, p.errorf("',' or ']' expected")
		}
		p.space()
	}
}

func (p *jsonParser) number() (Value, error) {
	start := p.i
	p.word("-")
	switch {
	case p.word("0"):
	case p.i < len(p.s) && p.s[p.i] >= '1' && p.s[p.i] <= '9':
		p.digits()
	default:
		p.i = start
		return Value{}, p.errorf("value expected")
	}
	float := false
	if p.i+1 < len(p.s) && p.s[p.i] == '.' && isDecimal(p.s[p.i+1]) {
		float = true
		p.i++
		p.digits()
	}
	if p.i < len(p.s) && p.s[p.i]|0x20 == 'e' {
		j := p.i + 1
		if j < len(p.s) && (p.s[j] == '+' || p.s[j] == '-') {
			j++
		}
		if j < len(p.s) && isDecimal(p.s[j]) {
			float = true
			p.i = j
			p.digits()
		}
	}
	text := p.s[start:p.i]
	if float {
		f, _ := strconv.ParseFloat(text, 64) // out of range gives ±Inf, as in Python
		return FloatValue(f), nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return IntValue(n), nil
	}
	if len(text) > maxIntDigits+1 || len(text) > maxIntDigits && text[0] != '-' {
		return Value{}, p.errorf("integer of more than %d digits", maxIntDigits)
	}
	n, _ := new(big.Int).SetString(text, 10)
	return BigValue(n), nil
}

func (p *jsonParser) digits() {
	for p.i < len(p.s) && isDecimal(p.s[p.i]) {
		p.i++
	}
}

func (p *jsonParser) str() (string, error) {
	p.i++
	start := p.i
	p.i = plainEnd(p.s, start, false)
	switch {
	case p.i == len(p.s):
		return "", p.errorf("string without end")
	case p.s[p.i] == '"':
		p.i++
		return p.s[start : p.i-1], nil
	case p.s[p.i] == '\\':
		return p.escaped(start)
	}
	return "", p.errorf("control character in a string")
}

// closing returns where the string around p.i ends: no string is longer unescaped.
func (p *jsonParser) closing() int {
	for i := p.i; ; i++ {
		k := strings.IndexByte(p.s[i:], '"')
		if k < 0 {
			return len(p.s)
		}
		i += k
		first := i // of the backslashes before the quote: an odd number escapes it
		for first > p.i && p.s[first-1] == '\\' {
			first--
		}
		if (i-first)%2 == 0 {
			return i
		}
	}
}

// plainEnd is the index of the next byte of s from i on that does not stand for itself in a
// string of JSON: a quote, a backslash or a control character; with ascii also DEL and a
// character beyond ASCII, as Python's ensure_ascii. It is len(s) if there is none. It checks
// eight bytes at a time.
func plainEnd(s string, i int, ascii bool) int {
	const low, high = 0x0101010101010101, 0x8080808080808080
	beyond, del := uint64(0), uint64(0)
	if ascii {
		beyond, del = high, low // a byte and 1: DEL gets the high bit
	}
	for ; i+8 <= len(s); i += 8 {
		b := s[i : i+8]
		w := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		quote, slash := w^'"'*low, w^'\\'*low
		marks := ((quote-low)&^quote|(slash-low)&^slash|(w-' '*low)&^w)&high | (w|((w&^high)+del))&beyond
		if marks != 0 {
			return i + bits.TrailingZeros64(marks)/8 // the lowest mark is exact
		}
	}
	for i < len(s) && s[i] >= ' ' && s[i] != '"' && s[i] != '\\' && (s[i] < 0x7f || !ascii) {
		i++
	}
	return i
}

// escaped reads a string that began at start, from its first escape on.
func (p *jsonParser) escaped(start int) (string, error) {
	var b strings.Builder
	b.Grow(p.closing() - start)
	b.WriteString(p.s[start:p.i])
	for p.i < len(p.s) {
		from := p.i
		p.i = plainEnd(p.s, p.i, false)
		b.WriteString(p.s[from:p.i])
		switch {
		case p.i == len(p.s):
			return "", p.errorf("string without end")
		case p.s[p.i] == '"':
			p.i++
			return b.String(), nil
		case p.s[p.i] < 0x20:
			return "", p.errorf("control character in a string")
		}
		if p.i+1 >= len(p.s) {
			break
		}
		p.i += 2
		switch c := p.s[p.i-1]; c {
		case '"', '\\', '/':
			b.WriteByte(c)
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'u':
			r, err := p.hex4()
			if err != nil {
				return "", err
			}
			if utf16.IsSurrogate(r) {
				if !p.word(`\u`) {
					return "", p.errorf("half of a surrogate pair")
				}
				low, err := p.hex4()
				if err != nil {
					return "", err
				}
				if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
					return "", p.errorf("half of a surrogate pair")
				}
			}
			b.WriteRune(r)
		default:
			return "", p.errorf("bad escape")
		}
	}
	return "", p.errorf("string without end")
}

func (p *jsonParser) hex4() (rune, error) {
	if len(p.s)-p.i < 4 {
		return 0, p.errorf("bad \\u escape")
	}
	n := rune(0)
	for _, c := range []byte(p.s[p.i : p.i+4]) {
		switch {
		case isDecimal(c):
			n = n<<4 | rune(c-'0')
		case isHex(c):
			n = n<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, p.errorf("bad \\u escape")
		}
	}
	p.i += 4
	return n, nil
}
