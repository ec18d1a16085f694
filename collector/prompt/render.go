package prompt

import (
	"fmt"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A renderer turns the conversations of one sample into prompt ids with the
// model's own template and tokenizer. Consecutive prompts share most of their
// text, so only what is new is encoded.
//
// It belongs to one goroutine.
type renderer struct {
	template *chat.Template
	tok      *bpe.Tokenizer

	text, next []byte     // the prompt before, and room for the next
	ids        []int32    // ids of text
	marks      []bpe.Mark // places where text may be cut
}

func (r *renderer) reset() {
	r.text, r.ids, r.marks = r.text[:0], nil, r.marks[:0]
}

// render returns the text of the prompt, valid until the next one.
func (r *renderer) render(in input) ([]byte, error) {
	out, err := r.template.Render(r.next[:0], chat.Input{Messages: in.messages.view(in.scrub), Tools: in.tools, AddGenerationPrompt: true})
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	r.next = out
	return out, nil
}

// prompt returns the ids of the prompt, in memory of their own.
func (r *renderer) prompt(in input) ([]int32, error) {
	out, err := r.render(in)
	if err != nil {
		return nil, err
	}

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
	ids := append(make([]int32, 0, len(r.ids)+(len(out)-at.Text)/2+16), r.ids[:at.IDs]...)
	ids, r.marks, err = r.tok.AppendMarked(ids, r.marks, string(out[at.Text:]), at)
	if err != nil {
		r.reset()
		return nil, fmt.Errorf("encode: %w", err)
	}
	r.text, r.next = r.next, r.text
	r.ids = ids
	return ids, nil
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
