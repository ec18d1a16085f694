package tokenize

import (
	"math"
	"math/bits"
	"strconv"
)

// Digits are decoded eight at a time. Xoring a word of eight characters with the constant zeros
// replaces each digit with its value. The first character is in the lowest byte.

const zeros = '0' * lowBits

// leadingDigits returns the number of digits at the start of a word that was xored with the
// constant zeros. The bytes after the first non-digit can have any value.
func leadingDigits(t uint64) int {
	return bits.TrailingZeros64(notDigit(t)) >> 3
}

// notDigit returns a word with 0x80 in the bytes of t that are above 9. Only the lowest 0x80 is
// reliable.
func notDigit(t uint64) uint64 {
	return (t + (0x80-10)*lowBits | t) & highBits
}

// eightDigits returns the number that the eight digit values in v represent.
func eightDigits(v uint64) uint64 {
	v = v*10 + v>>8
	const pairs = 0x000000FF000000FF
	return ((v&pairs)*(100+1000000<<32) + (v>>16&pairs)*(1+10000<<32)) >> 32
}

// A correctly rounded float32 does not need arbitrary precision. Let m be the integer below 2^63
// that consists of all digits of a decimal, and let the value be m * 10^-q with q ≤ 37. The
// computation of float64(m) * tenTo[q] rounds three times, so its error is less than 4 units in the
// last place of the double. A border is the midpoint between two adjacent float32 values; the low
// 29 bits of its double are 1<<28. Rounding the product to float32 is correct unless the product is
// closer to a border than the maximum error. Numbers near a border are left to strconv. The decimal
// that a program prints for a float32 is far from any border. Because m ≥ 1 and q ≤ 37, the result
// is a normal float32.

// nearBorder reports whether a double with the given bits is within 8 units in the last place of a
// border.
func nearBorder(bits uint64) bool {
	return uint32(bits&(1<<29-1))-(1<<28-8) <= 16
}

const maxScale = 37

// The fast path for log-probabilities uses 16 digits after the decimal point and only checks that
// the characters after them are digits. The unused digits amount to less than one unit of m. If m ≥
// leastCounted, they add an error of less than 2^17 units in the last place. Therefore the fast
// path requires a greater distance from the borders. A printed float32 is far from the borders. Of
// other decimals, about one in a thousand needs the slow path, which uses every digit.
const (
	countedDigits = 16
	leastCounted  = 1 << 36
)

// nearBorderCounted is like nearBorder, but for a number that was cut to countedDigits digits. It
// reports whether the double is within 2^18 units in the last place of a border.
func nearBorderCounted(bits uint64) bool {
	return uint32(bits&(1<<29-1))-(1<<28-1<<18) <= 1<<19
}

// tenTo[q] is the double closest to 10^-q. The length of the array lets &63 replace a bounds check.
var tenTo = [64]float64{
	1e-0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9,
	1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15, 1e-16, 1e-17, 1e-18, 1e-19,
	1e-20, 1e-21, 1e-22, 1e-23, 1e-24, 1e-25, 1e-26, 1e-27, 1e-28, 1e-29,
	1e-30, 1e-31, 1e-32, 1e-33, 1e-34, 1e-35, 1e-36, 1e-37,
}

var powers = [8]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7}

// float32Of rounds a JSON number correctly to a double, and then the double correctly to a float32.
// The result is infinite if the number is too large for a float32. The second result reports
// whether strconv converted the number.
func float32Of(number []byte) (v float32, slow bool) {
	m, q, ok := mantissa(number)
	if ok {
		f := float64(int64(m)) * tenTo[q&63]
		if b := math.Float64bits(f); !nearBorder(b) {
			if number[0] == '-' {
				f = math.Copysign(f, -1)
			}
			return float32(f), false
		}
	}
	f, _ := strconv.ParseFloat(string(number), 64) // the only possible error is ErrRange
	return float32(f), true
}

// mantissa returns m and q such that the number is ±m * 10^-q. ok is false if m or q is outside the
// range of the fast conversion.
func mantissa(number []byte) (m uint64, q int, ok bool) {
	i := 0
	if number[0] == '-' {
		i++
	}
	point := false
	for ; i < len(number); i++ {
		c := number[i]
		if c == '.' {
			point = true
			continue
		}
		if c-'0' > 9 {
			break
		}
		digit := uint64(c - '0')
		if m > (1<<63-1-digit)/10 {
			return 0, 0, false
		}
		m = m*10 + digit
		if point {
			q++
		}
	}
	if i < len(number) { // an exponent
		e, err := strconv.Atoi(string(number[i+1:]))
		if err != nil || e > 400 || e < -400 {
			return 0, 0, false
		}
		q -= e
	}
	return m, q, q >= 0 && q <= maxScale
}

// number reads a number and returns its text, which is valid until the next call of fill.
func (d *Decoder) number() ([]byte, error) {
	j := d.i
scan:
	for j-d.i <= maxNumberBytes {
		for ; j < d.n; j++ {
			c := d.buf[j]
			if c-'0' > 9 && c != '-' && c != '+' && c != '.' && c|0x20 != 'e' {
				break scan
			}
		}
		length := j - d.i
		if !d.fill() {
			break
		}
		j = d.i + length
	}
	text := d.buf[d.i:j]
	if len(text) > maxNumberBytes {
		return nil, &DecodeError{Offset: d.offset(), Err: limitError("maximum number length", maxNumberBytes)}
	}
	valid, complete := numberPrefix(text)
	if valid < len(text) || !complete {
		d.i += valid
		if d.i == d.n {
			return nil, d.end()
		}
		return nil, d.fail(ErrSyntax, "malformed number")
	}
	d.i = j
	return text, nil
}

// numberPrefix returns the length of the longest prefix of b that can begin a JSON number, and
// whether the prefix is already a complete number.
func numberPrefix(b []byte) (n int, complete bool) {
	digits := func() bool {
		start := n
		for n < len(b) && b[n]-'0' <= 9 {
			n++
		}
		return n > start
	}
	if n < len(b) && b[n] == '-' {
		n++
	}
	if n < len(b) && b[n] == '0' {
		n++
	} else if !digits() {
		return n, false
	}
	if n < len(b) && b[n] == '.' {
		n++
		if !digits() {
			return n, false
		}
	}
	if n < len(b) && b[n]|0x20 == 'e' {
		n++
		if n < len(b) && (b[n] == '+' || b[n] == '-') {
			n++
		}
		if !digits() {
			return n, false
		}
	}
	return n, true
}

// tokenID decodes a token id, which is a non-negative int32.
func (d *Decoder) tokenID() (int32, error) {
	if c := d.space(); c != '-' && c-'0' > 9 {
		return 0, d.wrongType("a token id", c)
	}
	at := d.offset()
	text, err := d.number()
	if err != nil {
		return 0, err
	}
	var v int64
	for _, c := range text {
		if c == '-' {
			return 0, &DecodeError{Offset: at, Err: ErrRange}
		}
		if c-'0' > 9 {
			return 0, &DecodeError{Offset: at, Err: &detailError{ErrSchema, "token id is not an integer"}}
		}
		if v = v*10 + int64(c-'0'); v > math.MaxInt32 {
			return 0, &DecodeError{Offset: at, Err: ErrRange}
		}
	}
	return int32(v), nil
}
