package prompt

import (
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A renderer turns the conversations of one sample into prompt ids, with the model's own template
// and tokenizer. Consecutive prompts share most of their text, so it encodes only the new part.
//
// It is not safe for concurrent use.
type renderer struct {
	model *Model
	tok   *bpe.Tokenizer // of the model
	clock bool           // the template reads the clock
	now   time.Time      // the time of the previous prompt

	text, next []byte     // the previous prompt, and the buffer for the next
	ids        []int32    // ids of text
	marks      []bpe.Mark // places where text can be cut

	// given starts with the ids of text, as prompt returned them. A prompt that extends given is
	// appended to it, and a prompt that is a prefix of given is a slice of it: they share memory.
	given []int32
	// longest is the number of ids of the longest prompt, to size given; 0 if unknown.
	longest int
}

func (r *renderer) reset() {
	r.text, r.ids, r.given, r.marks = r.text[:0], r.ids[:0], nil, r.marks[:0]
}

// render returns the prompt's text at the time of the previous prompt, valid until the next call.
func (r *renderer) render(in input) ([]byte, error) {
	out, err := r.model.render(r.next[:0], in, r.now, nil)
	if err != nil {
		return nil, err
	}
	r.next = out
	return out, nil
}

// prompt returns the ids of the prompt. They stay valid, and share memory: do not change them.
func (r *renderer) prompt(in input) ([]int32, error) {
	if _, err := r.render(in); err != nil {
		return nil, err
	}
	return r.split()
}

func (r *renderer) encode(t clockText) ([]int32, error) {
	r.next, r.now = append(r.next[:0], t.text...), t.at
	return r.split()
}

// split returns the ids of the text in next, and makes it the previous prompt.
func (r *renderer) split() ([]int32, error) {
	out := r.next
	var err error

	// Both texts have the same ids up to the last mark that is safely inside the common prefix. No
	// added token that starts before this mark can reach beyond the prefix.
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

	// given starts with the previous prompt's ids, and so with the ids before the mark.
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

func commonPrefix(a, b []byte) int {
	const block = 64
	n := min(len(a), len(b))
	i := 0
	for i+block <= n && [block]byte(a[i:]) == [block]byte(b[i:]) {
		i += block
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
