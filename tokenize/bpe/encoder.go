package bpe

// An encoder holds the memory that one call uses: caches of words, and scratch memory for merging
// and normalizing. Each concurrent call gets its own encoder from the tokenizer's pool. An encoder
// takes about 1.7 MB.
type encoder struct {
	model  *model
	added  [2]*trie
	steps  []normStep
	stages []stage

	base    int // offset of the piece being encoded
	tooLong PretokenError

	hot   [1 << hotBits]hotWord
	cache [1 << cacheBits]cachedWord
	merge mergeScratch
	norm  normalizer
	valid []byte

	space  *metaspace
	spaced []byte // output of space.apply
}

// Both caches are direct-mapped. The index is the hash of a word of up to 16 bytes. The hot cache
// holds words of all kinds. Together with the pair filter, it fits in the second-level CPU cache.
// The other cache holds only words with several tokens, because these words take the most time to
// merge.
const (
	hotBits   = 12
	cacheBits = 15
)

type hotWord struct {
	lo, hi uint64
	n, k   uint8 // n is the length in bytes, and k is the number of ids
	ids    [3]int32
}

type cachedWord struct {
	lo, hi uint64
	n, k   uint8
	ids    [7]int32
}

func (t *Tokenizer) encoder() *encoder {
	e, ok := t.pool.Get().(*encoder)
	if !ok {
		e = new(encoder)
	}
	e.model, e.added, e.steps, e.stages, e.space = &t.model, t.added, t.norm, t.stages, t.space
	e.tooLong = PretokenError{}
	return e
}

// keepBytes is the maximum size, in bytes, of a scratch buffer that an encoder in the pool keeps.
const keepBytes = 1 << 20

// shrink frees the scratch buffers that unusual text has made too large.
func (e *encoder) shrink() {
	if cap(e.merge.next) > keepBytes/16 || cap(e.merge.queue) > keepBytes/16 {
		e.merge = mergeScratch{}
	}
	if cap(e.norm.runes) > keepBytes/8 {
		e.norm.runes = nil
	}
	for _, b := range [...]*[]byte{&e.norm.out, &e.norm.spare, &e.spaced, &e.valid} {
		if cap(*b) > keepBytes {
			*b = nil
		}
	}
}

func (e *encoder) appendText(dst []int32, s string) []int32 {
	if e.space != nil && s != "" {
		s = e.space.apply(&e.spaced, s, e.base == 0)
	}
	return e.appendStages(dst, s, e.stages)
}

// appendStages splits s with the first stage and encodes each piece with the remaining stages.
func (e *encoder) appendStages(dst []int32, s string, stages []stage) []int32 {
	st, rest := &stages[0], stages[1:]
	if len(rest) == 0 {
		return e.appendPieces(dst, s, st)
	}
	base := e.base
	c := cutList{st: st, s: s}
	for i, j := c.next(); i < j; i, j = c.next() {
		e.base = base + i
		dst = e.appendStages(dst, s[i:j], rest)
	}
	return dst
}

// appendPieces splits s into pre-tokens with st and encodes them.
func (e *encoder) appendPieces(dst []int32, s string, st *stage) []int32 {
	switch {
	case st.cut != nil:
		if c := e.model.chars; c != nil && c.wholeWords {
			if id, ok := e.model.pieces.get(s); ok {
				return append(dst, id)
			}
		}
		for i := 0; i < len(s); {
			j := st.cut(s, i)
			dst = e.appendPretoken(dst, s, i, j)
			i = j
		}
	case st.gaps == isolated:
		for i := 0; i < len(s); {
			j := st.pattern.End(s, i)
			if j == i {
				j, _ = st.pattern.Next(s, i)
			}
			dst = e.appendPretoken(dst, s, i, j)
			i = j
		}
	default:
		c := cutList{st: st, s: s}
		for i, j := c.next(); i < j; i, j = c.next() {
			dst = e.appendPretoken(dst, s, i, j)
		}
	}
	return dst
}

func (e *encoder) appendPretoken(dst []int32, s string, i, j int) []int32 {
	if j-i <= 16 {
		return e.appendWord(dst, s, i, j, false)
	}
	return e.appendLong(dst, s, i, j)
}

// appendWord encodes s[i:j], which has at most 16 bytes. If part is true, s[i:j] is only a part of
// a pre-token.
func (e *encoder) appendWord(dst []int32, s string, i, j int, part bool) []int32 {
	lo, hi := loadWord(s, i, j)
	m, n := e.model, j-i
	if part && m.parts {
		n |= partWord
	}
	h := wordHash(lo, hi, n, m.words.seed)
	hot := &e.hot[h>>(64-hotBits)]
	if hot.lo == lo && hot.hi == hi && int(hot.n) == n {
		if hot.k == 1 {
			return append(dst, hot.ids[0])
		}
		return append(dst, hot.ids[:hot.k&3]...)
	}
	if id, ok := m.words.get(lo, hi, n, h); ok { // never found if n includes partWord
		*hot = hotWord{lo, hi, uint8(n), 1, [3]int32{id}}
		return append(dst, id)
	}
	c := &e.cache[h>>(64-cacheBits)]
	if c.lo != lo || c.hi != hi || int(c.n) != n {
		k := len(dst)
		dst = m.appendMerged(dst, s[i:j], &e.merge)
		if k = len(dst) - k; k <= len(c.ids) {
			c.lo, c.hi, c.n, c.k = lo, hi, uint8(n), uint8(k)
			copy(c.ids[:], dst[len(dst)-k:])
		}
		return dst
	}
	ids := c.ids[:c.k&7]
	if len(ids) <= len(hot.ids) {
		hot.lo, hot.hi, hot.n, hot.k = lo, hi, uint8(n), uint8(len(ids))
		copy(hot.ids[:], ids)
	}
	return append(dst, ids...)
}

// partWord is added to the cached length of a part of a pre-token. It distinguishes the part from a
// whole pre-token with the same text, whose tokens can differ.
const partWord = 32

// appendLong encodes the pre-token s[i:j], which is longer than 16 bytes.
func (e *encoder) appendLong(dst []int32, s string, i, j int) []int32 {
	if j-i > MaxPretoken {
		if e.tooLong.Len == 0 {
			e.tooLong = PretokenError{Offset: e.base + i, Len: j - i}
		}
		return dst
	}
	w := s[i:j]
	if id, ok := e.model.long[w]; ok {
		return append(dst, id)
	}
	if e.model.chars != nil { // cutChars has already split the text
		return e.model.appendMerged(dst, w, &e.merge)
	}
	for i < j {
		end := e.model.joins.cut(s, i, j)
		if end-i <= 16 {
			dst = e.appendWord(dst, s, i, end, true)
		} else {
			dst = e.model.appendMerged(dst, s[i:end], &e.merge)
		}
		i = end
	}
	return dst
}
