package bpe

import (
	"fmt"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/internal/textview"
)

// MaxPretoken is the maximum length of a pre-token in bytes. Pre-tokens in normal text are far
// shorter.
const MaxPretoken = 8 << 20

// A PretokenError reports a pre-token that is longer than MaxPretoken. Such a pre-token usually
// consists of one letter that is repeated many times.
type PretokenError struct {
	// Offset is the position of the pre-token in bytes. It refers to the text after invalid UTF-8
	// has been replaced. Normalization can shift it.
	Offset int
	Len    int
}

func (e *PretokenError) Error() string {
	return fmt.Sprintf("bpe: byte %d: pre-token of %d bytes is over the limit of %d", e.Offset, e.Len, MaxPretoken)
}

// AddedMode states whether added tokens are matched in the text.
type AddedMode uint8

// The modes.
const (
	// AddedAll matches all added tokens. Use it for the output of a chat template.
	AddedAll AddedMode = iota
	// AddedNone matches no added tokens, so untrusted text cannot close a turn or call a tool.
	AddedNone
)

// EncodeOptions configures encoding. Use the zero value for the output of a chat template.
type EncodeOptions struct {
	Added AddedMode
	// PostProcess adds the ids that the post-processor in tokenizer.json adds, such as the id of
	// <|begin_of_text|>. Leave it off for the output of a chat template, because the template
	// prints these tokens itself.
	PostProcess bool
}

// AppendTokens appends the ids of text to dst. It matches all added tokens and does not run the
// post-processor. Invalid UTF-8 is replaced with U+FFFD as in Python. The only possible error is a
// *PretokenError. After an error, dst is returned unchanged.
func (t *Tokenizer) AppendTokens(dst []int32, text string) ([]int32, error) {
	return t.AppendTokensWith(dst, text, EncodeOptions{})
}

// AppendTokensWith is like AppendTokens, but with options.
func (t *Tokenizer) AppendTokensWith(dst []int32, text string, opts EncodeOptions) ([]int32, error) {
	e := t.encoder()
	defer t.pool.Put(e)

	start := len(dst)
	if opts.PostProcess {
		dst = append(dst, t.prefix...)
	}
	if opts.Added == AddedNone {
		e.added = [2]*trie{}
	}
	if !utf8.ValidString(text) {
		e.valid = appendLossy(e.valid[:0], text)
		text = textview.Of(e.valid)
	}
	if t.kimiChunks {
		for i, window := 0, 0; i < len(text); {
			end := kimiChunk(text, i, &window)
			e.base = i
			dst = e.appendPass(dst, text[i:end], 0, nil)
			i = end
		}
	} else {
		e.base = 0
		dst = e.appendPass(dst, text, 0, nil)
	}
	e.shrink()
	if e.tooLong.Len > 0 {
		err := e.tooLong
		return dst[:start], &err
	}
	if opts.PostProcess {
		dst = append(dst, t.suffix...)
	}
	return dst, nil
}

// appendPass finds added tokens: pass 0 searches the raw text, and pass 1 searches the normalized
// text. It encodes the text between the tokens with the next pass. If marks is not nil, appendPass
// appends a Mark for the start of each token that it finds.
func (e *encoder) appendPass(dst []int32, s string, pass int, marks *[]Mark) []int32 {
	switch pass {
	case 1:
		s = e.norm.normalize(e.steps, s)
	case 2:
		return e.appendText(dst, s)
	}
	if e.added[pass] == nil {
		return e.appendPass(dst, s, pass+1, nil)
	}
	base := e.base
	c := cutter{trie: e.added[pass], s: s}
	for {
		from, to, tok := c.next()
		if from < to {
			e.base = base + from
			dst = e.appendPass(dst, s[from:to], pass+1, nil)
		}
		if tok == nil {
			return dst
		}
		if marks != nil {
			*marks = append(*marks, Mark{Text: base + to, IDs: len(dst)})
		}
		dst = append(dst, tok.ID)
	}
}

// A cutter finds the added tokens of one pass. If it rejects a match, it continues the search at
// the end of that match, as the reference engine does.
type cutter struct {
	trie *trie
	s    string
	at   int // where the search continues
	done int // end of the last token, including the white space that the token matched
}

// next returns the next token, or nil at the end. s[from:to] is the text before the token.
func (c *cutter) next() (from, to int, tok *Added) {
	for {
		start, end, tok := c.trie.find(c.s, c.at)
		if tok == nil {
			from, c.at, c.done = c.done, len(c.s), len(c.s)
			return from, len(c.s), nil
		}
		c.at = end
		if tok.SingleWord && (wordBefore(c.s[:start]) || wordAfter(c.s[end:])) {
			continue
		}
		if tok.LStrip {
			start = max(trimmedEnd(c.s[:start]), c.done)
		}
		if tok.RStrip {
			end = spanSpace(c.s, end)
		}
		if start >= end {
			// The previous token has already matched this text as white space, so skip this token.
			c.done = max(c.done, end)
			continue
		}
		from, c.done = c.done, end
		return from, start, tok
	}
}
