package tokenize

import "math"

// logprobs decodes a list of triples [logprob, id, …], or null. It appends the log-probabilities to
// the arena for log-probabilities, with NaN for null. It compares the ids with want and returns the
// position of the first difference, or -1. If want is nil, it appends the ids to the id arena
// instead.
func (d *Decoder) logprobs(want []int32) (list span, mismatch int, err error) {
	mismatch = -1
	switch c := d.space(); c {
	case 'n':
		return noSpan, -1, d.literal("null")
	case '[':
	default:
		return noSpan, -1, d.wrongType("a list of [logprob, id, …] or null", c)
	}
	d.i++
	limit := d.cfg.MaxTokens
	lo := len(d.out.logprobs)
	if d.space() == ']' {
		d.i++
		return span{lo, lo}, -1, nil
	}
	store := want == nil
	arena := d.out.logprobs[:min(cap(d.out.logprobs), max(lo, limit))]
	// If ids are stored, got[:k-lo] holds the ids decoded so far.
	got := d.out.ids[len(d.out.ids):min(cap(d.out.ids), max(len(d.out.ids), limit))]
	k := lo
	for {
		if d.n-d.i < tripleWindow {
			d.need(tripleWindow)
		}
		b, i := d.buf[:d.n], d.i
		closed := false
		for i+tripleWindow <= len(b) {
			// A triple begins with "[-d." or "[d.".
			j := i
			if b[j] != '[' {
				break
			}
			j++
			var sign uint32
			if b[j] == '-' {
				sign = 1 << 31
				j++
			}
			m := uint64(b[j]) - '0'
			if m > 9 || b[j+1] != '.' {
				break
			}
			j += 2
			// Next come 1 to 23 digits, of which only the first 16 are used. The number of digits
			// after the first eight is unpredictable, so the code does not branch on it.
			t := load64(b, j) ^ zeros
			q := countedDigits
			if notDigit(t) == 0 {
				t1, t2 := load64(b, j+8)^zeros, load64(b, j+16)^zeros
				n1 := leadingDigits(t1)
				n2 := leadingDigits(t2) & -(n1 >> 3) // 0 unless the first eight characters are digits
				if n2 > 7 {
					break
				}
				m = (m*1e8+eightDigits(t))*1e8 + eightDigits(t1&(1<<(8*uint(n1))-1))
				j += 8 + n1 + n2
			} else {
				n := leadingDigits(t)
				if n == 0 {
					break
				}
				m = m*powers[n&7] + eightDigits(t<<(uint(64-8*n)&63))
				q = n
				j += n
			}
			// An exponent is "e-d" or "e-dd".
			c := b[j]
			if c != ',' {
				if c != 'e' || b[j+1] != '-' {
					break
				}
				e := int(b[j+2]) - '0'
				if uint(e) > 9 {
					break
				}
				j += 3
				if e2 := int(b[j]) - '0'; uint(e2) <= 9 {
					e = e*10 + e2
					j++
				}
				q += e
				if q > maxScale || b[j] != ',' {
					break
				}
			}
			f := float64(int64(m)) * tenTo[q&63]
			if nearBorderCounted(math.Float64bits(f)) || m < leastCounted && q >= countedDigits {
				break
			}
			j++
			if b[j] == ' ' {
				j++
			}
			// The second element is the id.
			t = load64(b, j) ^ zeros
			n := leadingDigits(t)
			if uint(n-1) >= 7 || t&0xff == 0 && n > 1 || b[j+n] != ',' {
				break
			}
			id := int32(eightDigits(t << (uint(64-8*n) & 63)))
			j += n + 1
			if b[j] == ' ' {
				j++
			}
			// The third element is null or a short string.
			w := load64(b, j)
			if w&(1<<40-1) == nullClosed {
				j += 5
			} else {
				if b[j] != '"' {
					break
				}
				n := shortText(load64(b, j+1))
				if n == 0 || b[j+n] != ']' {
					break
				}
				j += n + 1
			}
			if c = b[j]; c != ',' && c != ']' {
				break
			}
			if k == len(arena) {
				if arena = growArena(arena, limit); k == len(arena) {
					break
				}
			}
			if store {
				if k-lo == len(got) {
					if got = d.growIDs(got); k-lo == len(got) {
						break
					}
				}
				got[k-lo] = id
			} else if k-lo < len(want) && want[k-lo] != id && mismatch < 0 {
				mismatch = k - lo
			}
			arena[k] = math.Float32frombits(math.Float32bits(float32(f)) | sign)
			k++
			i = j + 1
			if c == ']' {
				closed = true
				break
			}
			if b[i] == ' ' {
				i++
			}
		}
		d.i = i
		if !closed {
			// Slow path for one triple.
			d.space()
			at := d.offset()
			v, id, err := d.triple()
			if err != nil {
				return noSpan, -1, belowIndex(err, k-lo)
			}
			if k == len(arena) {
				arena = growArena(arena, limit)
			}
			if store && k-lo == len(got) {
				got = d.growIDs(got)
			}
			if k == len(arena) || store && k-lo == len(got) {
				return noSpan, -1, belowIndex(&DecodeError{Offset: at, Err: limitError("MaxTokens", int64(limit))}, k-lo)
			}
			if store {
				got[k-lo] = id
			} else if k-lo < len(want) && want[k-lo] != id && mismatch < 0 {
				mismatch = k - lo
			}
			arena[k] = v
			k++
			switch c := d.space(); c {
			case ',':
				d.i++
				d.space()
				continue
			case ']':
				d.i++
			default:
				return noSpan, -1, d.expected("',' or ']'", c)
			}
		}
		d.out.logprobs = arena[:k]
		if store {
			d.out.ids = d.out.ids[:len(d.out.ids)+k-lo]
		}
		return span{lo, k}, mismatch, nil
	}
}

// nullClosed is the text "null]" as load64 reads it into the low five bytes of a word.
const nullClosed = 'n' | 'u'<<8 | 'l'<<16 | 'l'<<24 | ']'<<32

// shortText returns the length, including both quotes, of a string with fewer than eight ASCII
// characters and no escapes. It returns 0 for any other value. w holds the bytes after the opening
// quote.
func shortText(w uint64) int {
	n, high := plainPrefix8(w)
	if n == 8 || high != 0 || w>>(8*uint(n)&63)&0xff != '"' {
		return 0
	}
	return n + 2
}

// growIDs grows the id arena and returns its unused part. The unused part begins with the elements
// of got.
func (d *Decoder) growIDs(got []int32) []int32 {
	used := len(d.out.ids)
	all := growArena(d.out.ids[:used+len(got)], d.cfg.MaxTokens)
	d.out.ids = all[:used]
	return all[used:]
}

// triple decodes one triple [logprob, id, …]. Elements after the id are validated and skipped.
func (d *Decoder) triple() (v float32, id int32, err error) {
	if c := d.space(); c != '[' {
		return 0, 0, d.wrongType("[logprob, id, …]", c)
	}
	d.i++
	switch c := d.space(); {
	case c == 'n':
		v = float32(math.NaN())
		err = d.literal("null")
	case c == ']':
		return 0, 0, d.fail(ErrSchema, "triple without a log-probability")
	case c == '-' || c-'0' <= 9:
		var text []byte
		if text, err = d.number(); err == nil {
			var slow bool
			if v, slow = float32Of(text); slow {
				d.slowFloats++
			}
		}
	default:
		err = d.wrongType("a log-probability or null", c)
	}
	if err != nil {
		return 0, 0, belowIndex(err, 0)
	}
	if c := d.space(); c != ',' {
		if c == ']' {
			return 0, 0, d.fail(ErrSchema, "log-probability without a token id")
		}
		return 0, 0, d.expected("','", c)
	}
	d.i++
	if id, err = d.tokenID(); err != nil {
		return 0, 0, belowIndex(err, 1)
	}
	for k := 2; ; k++ {
		switch c := d.space(); c {
		case ',':
			d.i++
			d.depth += 2 // inside the list and the triple
			if err := d.skip(); err != nil {
				return 0, 0, belowIndex(err, k)
			}
			d.depth -= 2
		case ']':
			d.i++
			return v, id, nil
		default:
			return 0, 0, d.expected("',' or ']'", c)
		}
	}
}
