package tokenize

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

func load64(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i:]) }

// special returns a word with 0x80 in the bytes of w that are special in a string: quotes,
// backslashes and control characters. Only the lowest 0x80 is reliable.
func special(w uint64) uint64 {
	q := w ^ '"'*lowBits
	e := w ^ '\\'*lowBits
	return ((q-lowBits)&^q | (e-lowBits)&^e | (w-' '*lowBits)&^w) & highBits
}

// plainPrefix returns the length of the longest prefix of b without special bytes. The result high
// is 0 if that prefix is ASCII.
func plainPrefix(b []byte) (n int, high uint64) {
	for n+8 <= len(b) {
		w := load64(b, n)
		if m := special(w); m != 0 {
			k := bits.TrailingZeros64(m) >> 3
			return n + k, (high | w&(1<<(8*uint(k)&63)-1)) & highBits
		}
		high |= w
		n += 8
	}
	for n < len(b) && b[n] != '"' && b[n] != '\\' && b[n] >= ' ' {
		high |= uint64(b[n])
		n++
	}
	return n, high & highBits
}

// plainPrefix8 is like plainPrefix, but for one word. n is 8 if the whole word is plain.
func plainPrefix8(w uint64) (n int, high uint64) {
	n = bits.TrailingZeros64(special(w)) >> 3
	return n, w & (1<<(8*uint(n)&63) - 1) & highBits
}

// plain consumes the bytes of a string up to the next special byte or the end of the buffer. It
// returns these bytes, which are valid until the next call of fill. The result more is false if
// buf[i] is now a special byte.
func (d *Decoder) plain() (s []byte, more bool, err error) {
	b := d.buf[d.i:d.n]
	n, high := plainPrefix(b)
	more = n == len(b)
	if high != 0 {
		if valid := validPrefix(b[:n]); valid < n {
			if !more || utf8.FullRune(b[valid:n]) {
				d.i += valid
				return nil, false, &DecodeError{Offset: d.offset(), Err: ErrUTF8}
			}
			n = valid // the rest of the rune has not been read yet
		}
	}
	d.i += n
	return b[:n], more, nil
}

func validPrefix(b []byte) int {
	if utf8.Valid(b) {
		return len(b)
	}
	n := 0
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	return n
}

// str appends the text of a string to dst until dst has limit bytes. The rest of the string is only
// validated. buf[i] must be the byte after the opening quote.
func (d *Decoder) str(dst []byte, limit int) ([]byte, error) {
	for {
		s, more, err := d.plain()
		if err != nil {
			return dst, err
		}
		dst = append(dst, s[:min(len(s), limit-len(dst))]...)
		if more {
			if !d.fill() {
				return dst, d.end()
			}
			continue
		}
		switch d.buf[d.i] {
		case '"':
			d.i++
			return dst, nil
		case '\\':
			r, err := d.escape()
			if err != nil {
				return dst, err
			}
			if len(dst)+utf8.RuneLen(r) <= limit {
				dst = utf8.AppendRune(dst, r)
			} else {
				limit = len(dst)
			}
		default:
			return dst, d.fail(ErrSyntax, "control character in a string")
		}
	}
}

// skipString validates and discards a string. buf[i] must be the byte after the opening quote.
func (d *Decoder) skipString() error {
	if n := len(d.long); n > 0 && bytes.HasPrefix(d.buf[d.i:d.n], d.long) {
		d.i += n
		return nil
	}
	start, base := d.i, d.base
	for {
		d.i += skippable(d.buf[d.i:d.n])
		_, more, err := d.plain()
		if err != nil {
			return err
		}
		if more {
			if !d.fill() {
				return d.end()
			}
			continue
		}
		switch d.buf[d.i] {
		case '"':
			d.i++
			if d.i-start >= longString && d.base == base {
				d.long = d.buf[start:d.i]
			}
			return nil
		case '\\':
			if _, err := d.escape(); err != nil {
				return err
			}
		default:
			return d.fail(ErrSyntax, "control character in a string")
		}
	}
}

// longString is the minimum length, in bytes, of a skipped string that Decoder.long keeps.
const longString = 64

// skippable returns the length of a prefix of b that consists of plain ASCII, two-character escapes
// and single non-ASCII runes. b must be inside a string. Such escapes and runes are frequent: a
// string that contains JSON has an escape every few bytes, and text in many languages is not ASCII.
func skippable(b []byte) int {
	i := 0
	for i+8 <= len(b) {
		w := load64(b, i)
		m := (special(w) | w) & highBits
		if m == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(m) >> 3
		at := i
		for i+1 < len(b) && b[i] == '\\' && shortEscapes[b[i+1]] {
			i += 2
		}
		if i > at {
			continue
		}
		// Skip a single non-ASCII rune. For a sequence of such runes, plain is faster.
		_, n := utf8.DecodeRune(b[i:])
		if n == 1 || i+n < len(b) && b[i+n] >= utf8.RuneSelf {
			return i
		}
		i += n
	}
	return i
}

// shortEscapes contains the characters that form a two-character escape with a backslash.
var shortEscapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// escape decodes one escape sequence. buf[i] must be the backslash. A lone surrogate becomes
// U+FFFD.
func (d *Decoder) escape() (rune, error) {
	if !d.need(2) {
		return 0, d.end()
	}
	d.i++
	c := d.buf[d.i]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		d.i++
		r, err := d.hex4()
		if err != nil || !utf16.IsSurrogate(r) {
			return r, err
		}
		if d.need(6) {
			if b := d.buf[d.i : d.i+6]; b[0] == '\\' && b[1] == 'u' {
				if low, ok := hex(b[2:]); ok {
					if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
						d.i += 6
						return pair, nil
					}
				}
			}
		}
		return utf8.RuneError, nil
	default:
		return 0, d.fail(ErrSyntax, "unknown escape in a string")
	}
	d.i++
	return rune(c), nil
}

func (d *Decoder) hex4() (rune, error) {
	d.need(4)
	for k := range 4 {
		if k == d.n-d.i {
			return 0, d.end()
		}
		if _, ok := hexDigit(d.buf[d.i+k]); !ok {
			d.i += k
			return 0, d.fail(ErrSyntax, "expected a hexadecimal digit")
		}
	}
	r, _ := hex(d.buf[d.i : d.i+4])
	d.i += 4
	return r, nil
}

func hex(b []byte) (r rune, ok bool) {
	for _, c := range b {
		v, ok := hexDigit(c)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(v)
	}
	return r, true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}
