package tokenize

import (
	"bytes"
	"math/bits"
)

// idWindow and tripleWindow are the maximum numbers of bytes that one iteration of the fast loop
// reads for ids and for triples.
const (
	idWindow     = 16
	tripleWindow = 96
)

// growArena returns a longer copy of s, at most limit elements long. If s already has limit
// elements, it returns s itself.
func growArena[T any](s []T, limit int) []T {
	size := min(max(4096, 2*cap(s)), limit)
	if size <= len(s) {
		return s
	}
	grown := make([]T, size)
	copy(grown, s)
	return grown
}

// idBlock is the number of bytes that idBlocks searches for commas at a time.
const idBlock = 64

// idBlocks decodes ids block by block while dst has room for all ids that a block can contain. It
// stops at the first id that the slow path must decode, such as an id with a space after it. It
// returns the number of decoded ids. It finds the commas in a block before it decodes the ids, so
// decoding one id does not wait for the previous id. This takes a quarter less time than a loop
// over single ids.
func (d *Decoder) idBlocks(dst []int32) int {
	const word = 8
	k, i, b := 0, d.i, d.buf[:d.n]
	if i < word { // load64(b, end-word) must not read before the start of b
		return 0
	}
	for i+idBlock <= len(b) && k+idBlock/2 <= len(dst) {
		commas := commasOf((*[idBlock]byte)(b[i:]))
		start := i
		for commas != 0 {
			end := i + bits.TrailingZeros64(commas)
			commas &= commas - 1
			n := uint(end - start)
			t := (load64(b, end-word) ^ zeros) & (^uint64(0) << ((64 - 8*n) & 63))
			v := eightDigits(t)
			if n-1 >= 7 || notDigit(t) != 0 || v < leastOf[n&7] {
				d.i = start
				return k
			}
			dst[k] = int32(v)
			k++
			start = end + 1
		}
		if start == i {
			break
		}
		i = start
	}
	d.i = i
	return k
}

// commasOf returns a bit set of the commas in a block; bit 0 stands for the first byte.
func commasOf(block *[idBlock]byte) (set uint64) {
	for i := 0; i < idBlock; i += 8 {
		t := load64(block[:], i) ^ ','*lowBits
		// Replace each zero byte of t with 0x80 and each other byte with 0.
		t = ^((t&^highBits + (0x80-1)*lowBits) | t) & highBits
		// The multiplication gathers these bits in the top byte.
		set |= (t >> 7) * 0x0102040810204080 >> 56 << i
	}
	return set
}

// leastOf[n] is the smallest number with n digits and no leading zero.
var leastOf = [8]uint64{0, 0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6}

// ids decodes a list of ids, or null, into the id arena.
func (d *Decoder) ids() (span, error) {
	list, more, err := d.beginIDs()
	if more {
		return d.moreIDs(list.lo)
	}
	return list, err
}

// promptIDs is like ids, but for a prompt. The text of a prompt usually begins like the text of the
// previous prompt. promptIDs does not decode the common part again but only compares it. Comparing
// takes a tenth of the time.
func (d *Decoder) promptIDs() (span, error) {
	list, more, err := d.beginIDs()
	if !more {
		return list, err
	}
	d.repeatPrompt()
	d.promptAt = list.lo
	list, err = d.moreIDs(list.lo)
	d.flushPrompt()
	d.promptKeep = -1
	return list, err
}

// maxPromptText is the maximum length of Decoder.prompt. The text of a prompt beyond this length is
// always decoded.
const maxPromptText = 1 << 20

// repeatPrompt consumes ids, each with its comma, as long as their text is the same as in the
// previous prompt. It copies the ids instead of decoding them.
func (d *Decoder) repeatPrompt() {
	same, from := 0, d.promptAt
	for {
		n := commonPrefix(d.buf[d.i:d.n], d.prompt[same:])
		all := d.i+n == d.n
		text := d.buf[d.i : d.i+bytes.LastIndexByte(d.buf[d.i:d.i+n], ',')+1]
		ids := bytes.Count(text, []byte{','})
		if len(d.out.ids)+ids > d.cfg.MaxTokens {
			break // moreIDs reports the error
		}
		d.out.ids = append(d.out.ids, d.out.ids[from:from+ids]...)
		from += ids
		same += len(text)
		d.i += len(text)
		if !all || d.n-d.i >= idWindow || !d.fill() {
			break
		}
	}
	d.prompt, d.promptKeep = d.prompt[:same], d.i
}

// flushPrompt appends the consumed text of the prompt to d.prompt. It must be called before the
// buffer changes.
func (d *Decoder) flushPrompt() {
	if d.promptKeep < 0 {
		return
	}
	b := d.buf[d.promptKeep:d.i]
	d.prompt = append(d.prompt, b[:min(len(b), maxPromptText-len(d.prompt))]...)
	d.promptKeep = 0 // fill moves buf[i] to buf[0]
}

// beginIDs consumes the beginning of a list of ids. The result more is false if the list is already
// complete (null or empty) or if an error occurred.
func (d *Decoder) beginIDs() (list span, more bool, err error) {
	switch c := d.space(); c {
	case 'n':
		return noSpan, false, d.literal("null")
	case '[':
	default:
		return noSpan, false, d.wrongType("a list of token ids or null", c)
	}
	d.i++
	lo := len(d.out.ids)
	if d.space() == ']' {
		d.i++
		return span{lo, lo}, false, nil
	}
	return span{lo, lo}, true, nil
}

// moreIDs decodes the rest of the list that begins at lo in the id arena.
func (d *Decoder) moreIDs(lo int) (span, error) {
	// arena[:k] is in use; the rest is free.
	k := len(d.out.ids)
	arena := d.out.ids[:min(cap(d.out.ids), max(k, d.cfg.MaxTokens))]
	for {
		if d.n-d.i < idWindow {
			d.need(idWindow)
		}
		k += d.idBlocks(arena[k:])
		b, i := d.buf[:d.n], d.i
		closed := false
		for i+idWindow <= len(b) {
			t := load64(b, i) ^ zeros
			n := leadingDigits(t)
			if uint(n-1) >= 7 || t&0xff == 0 && n > 1 {
				break
			}
			if k == len(arena) {
				if arena = growArena(arena, d.cfg.MaxTokens); k == len(arena) {
					break
				}
			}
			c := b[i+n]
			if c != ',' && c != ']' {
				break
			}
			arena[k] = int32(eightDigits(t << (uint(64-8*n) & 63)))
			k++
			i += n + 1
			if c == ']' {
				closed = true
				break
			}
			if b[i] == ' ' {
				i++
			}
		}
		d.i = i
		if closed {
			d.out.ids = arena[:k]
			return span{lo, k}, nil
		}
		// Slow path for one id.
		d.space()
		at := d.offset()
		id, err := d.tokenID()
		if err != nil {
			return noSpan, belowIndex(err, k-lo)
		}
		if k == len(arena) {
			if arena = growArena(arena, d.cfg.MaxTokens); k == len(arena) {
				return noSpan, belowIndex(&DecodeError{Offset: at, Err: limitError("MaxTokens", int64(d.cfg.MaxTokens))}, k-lo)
			}
		}
		arena[k] = id
		k++
		switch c := d.space(); c {
		case ',':
			d.i++
			d.space()
		case ']':
			d.i++
			d.out.ids = arena[:k]
			return span{lo, k}, nil
		default:
			return noSpan, d.expected("',' or ']'", c)
		}
	}
}
