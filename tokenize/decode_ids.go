package tokenize

// Longest look-ahead of one pass of the fast loops of ids and logprobs.
const (
	idWindow     = 16
	tripleWindow = 96
)

// growArena returns an arena with room for more elements, up to limit; the same
// where there is none left.
func growArena[T any](s []T, limit int) []T {
	size := min(max(4096, 2*cap(s)), limit)
	if size <= len(s) {
		return s
	}
	grown := make([]T, size)
	copy(grown, s)
	return grown
}

// ids reads a list of ids, or null, into the id arena.
func (d *Decoder) ids() (span, error) {
	switch c := d.space(); c {
	case 'n':
		return noSpan, d.literal("null")
	case '[':
	default:
		return noSpan, d.wrongType("a list of token ids or null", c)
	}
	d.i++
	lo := len(d.out.ids)
	if d.space() == ']' {
		d.i++
		return span{lo, lo}, nil
	}
	// arena[:k] is in use; what is behind it may be written
	arena, k := d.out.ids[:min(cap(d.out.ids), max(lo, d.cfg.MaxTokens))], lo
	for {
		if d.n-d.i < idWindow {
			d.need(idWindow)
		}
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
		// one id the plain way
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
