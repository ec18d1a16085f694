package bpe

import (
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/internal/textview"
)

// A Mark is a position at which text can be cut. If both parts are encoded separately, the joined
// ids are the ids of the whole text. The position is the start of an added token that is matched in
// the raw text.
type Mark struct {
	Text int // offset in bytes
	IDs  int // number of ids before the position
}

// AppendMarked is like AppendTokens, but for text that can be encoded in parts. For each position
// at which the text can be cut, it also appends a Mark to marks. The parameter at is the position
// of text within the whole text. The new marks are positions in the whole text too. AppendMarked
// appends no marks if the match of an added token depends on the text around it, or if text is not
// valid UTF-8.
//
// If two strings have the same first n bytes, their ids are the same up to each mark at or before
// n-LongestAdded(). An added token that begins before such a mark cannot extend past the common
// bytes.
//
// AppendMarked does not keep text. After an error, dst and marks are returned unchanged.
func (t *Tokenizer) AppendMarked(dst []int32, marks []Mark, text []byte, at Mark) ([]int32, []Mark, error) {
	s := textview.Of(text)
	if t.added[0] == nil || t.kimiChunks || t.looksAround() || !utf8.Valid(text) {
		dst, err := t.AppendTokens(dst, s)
		return dst, marks, err
	}
	e := t.encoder()
	defer t.pool.Put(e)
	e.base = at.Text
	places := marks
	ids := e.appendPass(dst, s, 0, &places)
	e.shrink()
	if e.tooLong.Len > 0 {
		err := e.tooLong
		return dst, marks, &err
	}
	return ids, places, nil
}

// LongestAdded returns the length in bytes of the longest added token.
func (t *Tokenizer) LongestAdded() int {
	n := 0
	for i := range t.addedAll {
		n = max(n, len(t.addedAll[i].Content))
	}
	return n
}

// looksAround reports whether the match of an added token depends on the text around it.
func (t *Tokenizer) looksAround() bool {
	for i := range t.addedAll {
		a := &t.addedAll[i]
		if a.SingleWord || a.LStrip || a.RStrip {
			return true
		}
	}
	return false
}
