package prompt

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A renderer turns the conversations of one sample into prompt ids with the
// model's own template and tokenizer. Consecutive prompts share most of their
// text, so only what is new is encoded.
//
// It belongs to one goroutine.
type renderer struct {
	model *Model
	tok   *bpe.Tokenizer // of the model
	clock bool           // the template reads the clock
	now   time.Time      // the time of the previous prompt

	text, next []byte     // the prompt before, and room for the next
	ids        []int32    // ids of text
	marks      []bpe.Mark // places where text may be cut

	// given begins with the ids of text, as prompt returned them. A prompt that begins
	// with given is appended to it, and one that given begins with is cut from it: they
	// share its memory.
	given []int32
	// longest is how many ids the longest prompt of the sample will have, 0 where that is
	// not known. It makes room in given.
	longest int
}

func (r *renderer) reset() {
	r.text, r.ids, r.given, r.marks = r.text[:0], r.ids[:0], nil, r.marks[:0]
}

// render returns the text of the prompt at the time of the previous prompt. The text is valid
// until the next call.
func (r *renderer) render(in input) ([]byte, error) {
	out, err := r.model.render(r.next[:0], in, r.now, nil)
	if err != nil {
		return nil, err
	}
	r.next = out
	return out, nil
}

// prompt returns the ids of the prompt. They stay as they are, and the caller must not
// change them: prompts share what they have in common.
func (r *renderer) prompt(in input) ([]int32, error) {
	if _, err := r.render(in); err != nil {
		return nil, err
	}
	return r.split()
}

// encode returns the ids of a rendered prompt.
func (r *renderer) encode(t clockText) ([]int32, error) {
	r.next, r.now = append(r.next[:0], t.text...), t.at
	return r.split()
}

// split returns the ids of the text in next, and makes it the previous prompt.
func (r *renderer) split() ([]int32, error) {
	out := r.next
	var err error

	// Up to the last mark that lies safely within what both texts share, their ids
	// are the same: no added token that begins before it can reach beyond.
	same := commonPrefix(r.text, out) - r.tok.LongestAdded()
	n := len(r.marks)
	for n > 0 && r.marks[n-1].Text > same {
		n--
	}
	var at bpe.Mark
	if n > 0 {
		at = r.marks[n-1]
	}
	r.marks = r.marks[:n]
	r.ids, r.marks, err = r.tok.AppendMarked(r.ids[:at.IDs], r.marks, out[at.Text:], at)
	if err != nil {
		r.reset()
		return nil, fmt.Errorf("encode: %w", err)
	}
	r.text, r.next = r.next, r.text

	// given begins with the ids of the prompt before, and so with those before the mark.
	total, shared := len(r.ids), min(len(r.given), len(r.ids))
	if !slices.Equal(r.given[at.IDs:shared], r.ids[at.IDs:shared]) {
		r.given, shared = nil, 0
	}
	if total > cap(r.given) {
		room := total + total/2
		if total <= r.longest {
			room = r.longest
		}
		r.given = append(make([]int32, 0, room), r.given...)
	}
	r.given = append(r.given, r.ids[shared:]...)
	return r.given[:total:total], nil
}

// commonPrefix returns how many bytes a and b begin with alike.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if d := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); d != 0 {
			return i + bits.TrailingZeros64(d)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
