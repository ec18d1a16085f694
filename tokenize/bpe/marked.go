package bpe

import "unicode/utf8"

// A Mark is a place at which a text may be cut: the ids of both parts, put
// together, are those of the whole. It is the start of an added token that is
// looked for in the raw text.
type Mark struct {
	Text int // offset in bytes
	IDs  int // number of ids before it
}

// AppendMarked is AppendTokens for a text that may come in parts. It appends to
// marks the places of text at which it may be cut, counted from at, which says
// where text begins within the whole. There are none for tokenizers whose added
// tokens look at what is around them, and for text that is not valid UTF-8.
//
// Two texts that share their first n bytes have the same ids up to every mark at
// or before n-LongestAdded(): no added token that begins before such a mark can
// reach beyond what is shared.
//
// text is read during the call only. On an error dst and marks are returned as they
// were.
func (t *Tokenizer) AppendMarked(dst []int32, marks []Mark, text []byte, at Mark) ([]int32, []Mark, error) {
	s := stringOf(text)
	if t.added[0] == nil || t.chunks || t.looksAround() || !utf8.Valid(text) {
		dst, err := t.AppendTokens(dst, s)
		return dst, marks, err
	}
	e := t.encoder()
	defer t.pool.Put(e)
	ids, places := dst, marks
	c := cutter{trie: t.added[0], s: s}
	for {
		from, to, tok := c.next()
		if from < to {
			e.base = at.Text + from
			ids = t.appendPiece(ids, s[from:to], AddedAll, e)
		}
		if tok == nil {
			break
		}
		places = append(places, Mark{Text: at.Text + to, IDs: len(ids)})
		ids = append(ids, tok.ID)
	}
	e.shrink()
	if e.tooLong.Len > 0 {
		err := e.tooLong
		return dst, marks, &err
	}
	return ids, places, nil
}

// LongestAdded is the length in bytes of the longest added token.
func (t *Tokenizer) LongestAdded() int {
	n := 0
	for i := range t.addedAll {
		n = max(n, len(t.addedAll[i].Content))
	}
	return n
}

// looksAround reports whether an added token counts, or swallows space, according
// to what is around it.
func (t *Tokenizer) looksAround() bool {
	for i := range t.addedAll {
		a := &t.addedAll[i]
		if a.SingleWord || a.LStrip || a.RStrip {
			return true
		}
	}
	return false
}
