package prompt

import (
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A renderer turns the conversations of one sample into prompt ids, with the model's own template
// and tokenizer. Consecutive prompts share most of their text, so the renderer encodes only the new
// part.
//
// It is not safe for concurrent use.
type renderer struct {
	model *Model
	tok   *bpe.Tokenizer
	clock bool      // the template reads the clock
	now   time.Time // the time of the previous prompt

	text, next []byte     // the previous prompt, and the buffer for the next prompt
	ids        []int32    // ids of text
	marks      []bpe.Mark // positions in text from which encoding can resume

	// given is the memory that the prompts share. It begins with the ids of text. If the next
	// prompt extends these ids, only the new ids are appended. If the next prompt is a prefix of
	// given, the result is a slice of given.
	given []int32
	// longest is the number of ids in the longest prompt, or 0 if unknown. It determines the
	// capacity of the field given.
	longest int
}

func (r *renderer) reset() {
	r.text, r.ids, r.given, r.marks = r.text[:0], r.ids[:0], nil, r.marks[:0]
}

// render returns the text of the prompt, rendered at the time of the previous prompt. The text is
// valid until the next call.
func (r *renderer) render(in input) ([]byte, error) {
	out, err := r.model.render(r.next[:0], in, r.now, nil)
	if err != nil {
		return nil, err
	}
	r.next = out
	return out, nil
}

// prompt returns the ids of the prompt. The slice stays valid, but it shares memory with other
// prompts and must not be modified.
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

// split encodes the text in the field next, makes this text the previous prompt, and returns the
// ids.
func (r *renderer) split() ([]int32, error) {
	out := r.next
	var err error

	// The old and the new text have the same ids up to the last mark that is far enough inside
	// their common prefix. No added token that starts before this mark can extend beyond the
	// prefix.
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

	// The slice given begins with the ids of the previous prompt, and therefore with the ids before
	// the mark.
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
