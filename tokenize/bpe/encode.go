package bpe

import (
	"fmt"
	"unicode/utf8"
)

// MaxPretoken is the longest pre-token, in bytes, that is encoded. No text has one
// of a size near this.
const MaxPretoken = 8 << 20

// A PretokenError says that a text holds a pre-token over MaxPretoken: one letter
// repeated for ever, as a rule.
type PretokenError struct {
	// Offset is where the pre-token begins, in bytes of the text as it was
	// encoded: with invalid UTF-8 replaced, and normalized.
	Offset int
	// Len is its length in bytes.
	Len int
}

func (e *PretokenError) Error() string {
	return fmt.Sprintf("bpe: byte %d: pre-token of %d bytes is over the limit of %d", e.Offset, e.Len, MaxPretoken)
}

// AddedMode says which added tokens are looked for in a text.
type AddedMode uint8

// The modes.
const (
	// AddedAll finds all of them: for text that a chat template made.
	AddedAll AddedMode = iota
	// AddedNotSpecial reads special tokens as plain text, as the reference engine
	// does with encode_special_tokens set.
	AddedNotSpecial
	// AddedNone reads everything as plain text: for untrusted text, which can then
	// not close a turn or open a tool call.
	AddedNone
)

// EncodeOptions says how to encode a text. The zero value is what a rendered chat
// template wants.
type EncodeOptions struct {
	Added AddedMode
	// PostProcess adds what the post-processor of tokenizer.json puts around a
	// text, such as <|begin_of_text|>. Templates print that themselves.
	PostProcess bool
}

// AppendTokens appends the ids of text to dst, with all added tokens found and
// nothing put around. Invalid UTF-8 is read as U+FFFD, by Python's rule. The only
// error is a *PretokenError; dst is then returned as it was.
func (t *Tokenizer) AppendTokens(dst []int32, text string) ([]int32, error) {
	return t.AppendTokensWith(dst, text, EncodeOptions{})
}

// AppendTokensWith is AppendTokens with options.
func (t *Tokenizer) AppendTokensWith(dst []int32, text string, opts EncodeOptions) ([]int32, error) {
	e := t.encoder()
	defer t.pool.Put(e)

	start := len(dst)
	if opts.PostProcess {
		dst = append(dst, t.prefix...)
	}
	if !utf8.ValidString(text) {
		e.valid = appendLossy(e.valid[:0], text)
		text = stringOf(e.valid)
	}
	if t.chunks {
		for i, window := 0, 0; i < len(text); {
			end := kimiChunk(text, i, &window)
			e.base = i
			dst = t.appendRaw(dst, text[i:end], opts.Added, e)
			i = end
		}
	} else {
		e.base = 0
		dst = t.appendRaw(dst, text, opts.Added, e)
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

// appendRaw cuts the added tokens of the first pass and encodes what is between.
func (t *Tokenizer) appendRaw(dst []int32, s string, mode AddedMode, e *encoder) []int32 {
	if t.added[0] == nil || mode == AddedNone {
		return t.appendPiece(dst, s, mode, e)
	}
	base := e.base
	c := cutter{trie: t.added[0], s: s, mode: mode}
	for {
		from, to, tok := c.next()
		if from < to {
			e.base = base + from
			dst = t.appendPiece(dst, s[from:to], mode, e)
		}
		if tok == nil {
			return dst
		}
		dst = append(dst, tok.ID)
	}
}

// appendPiece normalizes a piece without added tokens of the first pass, cuts
// those of the second and encodes what is between.
func (t *Tokenizer) appendPiece(dst []int32, s string, mode AddedMode, e *encoder) []int32 {
	s = e.norm.normalize(t.norm, s)
	if t.added[1] == nil || mode == AddedNone {
		return e.appendText(dst, s)
	}
	base := e.base
	c := cutter{trie: t.added[1], s: s, mode: mode}
	for {
		from, to, tok := c.next()
		if from < to {
			e.base = base + from
			dst = e.appendText(dst, s[from:to])
		}
		if tok == nil {
			return dst
		}
		dst = append(dst, tok.ID)
	}
}

// A cutter finds the added tokens of one pass in s, as the reference engine
// does: a match that does not count is still stepped over.
type cutter struct {
	trie *trie
	s    string
	mode AddedMode
	at   int // where the search goes on
	done int // end of the last token, with the space it swallowed
}

// next returns the text before the next token, s[from:to], which may be empty,
// and the token; nil at the end.
func (c *cutter) next() (from, to int, tok *Added) {
	for {
		start, end, tok := c.trie.find(c.s, c.at)
		if tok == nil {
			from, c.at, c.done = c.done, len(c.s), len(c.s)
			return from, len(c.s), nil
		}
		c.at = end
		if tok.Special && c.mode == AddedNotSpecial {
			continue
		}
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
			// The token before swallowed it: nothing is left that it could stand for.
			c.done = max(c.done, end)
			continue
		}
		from, c.done = c.done, end
		return from, start, tok
	}
}
