package bpe

import (
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/internal/textview"
)

// A charText decodes tokens one by one, for a vocabulary of characters. Consecutive byte tokens
// are held as bytes at the end of the output until another token follows. If these bytes are then
// valid UTF-8, they become text. Otherwise each byte becomes one U+FFFD.
type charText struct {
	raw   bool // the output is bytes, not text
	seen  bool // a token has been added
	later bool // a token, or a sequence of held bytes, has become text
	held  int  // number of held bytes at the end of the output
}

// add appends the text of the token with the given id. The caller must check that the id has a
// token and that the token is not skipped.
func (c *charText) add(dst []byte, t *Tokenizer, id int32) []byte {
	d := t.decoder
	first := !c.seen
	c.seen = true
	if d.first && !c.later {
		return c.addFirst(dst, d, applySteps(t.decodedSpelling(id), d.before, first))
	}
	text := t.bytes[t.off[id]:t.off[id+1]]
	if t.flags[id]&flagByte != 0 {
		return c.addByte(dst, text[0])
	}
	dst = c.flush(dst, d)
	c.later = true
	return append(dst, text...)
}

// addFirst is like add, but for a token that can produce the first text after the decoder step
// ByteFallback. The argument s is the token's text before this step.
func (c *charText) addFirst(dst []byte, d *decoder, s string) []byte {
	if b, ok := spelledByte(s); ok && d.fallback {
		return c.addByte(dst, b)
	}
	dst = c.flush(dst, d)
	dst = append(dst, applySteps(s, d.after, !c.later)...)
	c.later = true
	return dst
}

func (c *charText) addByte(dst []byte, b byte) []byte {
	if c.raw {
		c.later = true
	} else {
		c.held++
	}
	return append(dst, b)
}

// flush converts the held bytes, which are at the end of dst, to text.
func (c *charText) flush(dst []byte, d *decoder) []byte {
	if c.held == 0 {
		return dst
	}
	n, first := c.held, !c.later
	c.held, c.later = 0, true
	run := dst[len(dst)-n:]
	if !utf8.Valid(run) {
		dst = dst[:len(dst)-n]
		for i := range n {
			dst = append(dst, applySteps(replacement, d.after, first && i == 0)...)
		}
	} else if len(d.after) > 0 {
		dst = append(dst[:len(dst)-n], applySteps(string(run), d.after, first)...)
	}
	return dst
}

// trimmed returns the text without the prefix that the trim steps remove. The argument must begin
// with the first token's text.
func (d *decoder) trimmed(text []byte) []byte {
	for i := range d.trim {
		step := &d.trim[i]
		for n := step.n; n > 0 && strings.HasPrefix(textview.Of(text), step.from); n-- {
			text = text[len(step.from):]
		}
	}
	return text
}

// appendToken appends the text of the token with the given spelling, which must not be the first
// token. The result isByte is true if the token is a byte token.
func (d *decoder) appendToken(dst []byte, spelled string) (_ []byte, isByte bool) {
	s := applySteps(spelled, d.before, false)
	if b, ok := spelledByte(s); ok && d.fallback {
		return append(dst, b), true
	}
	return append(dst, applySteps(s, d.after, false)...), false
}

// appendChars implements AppendBytes and AppendText for vocabularies of characters. It appends
// bytes if raw is true.
func (t *Tokenizer) appendChars(dst []byte, ids []int32, opts DecodeOptions, raw bool) ([]byte, error) {
	start := len(dst)
	skip := opts.skip()
	c := charText{raw: raw}
	for _, id := range ids {
		if uint(id) >= uint(len(t.flags)) || t.flags[id]&flagUsed == 0 {
			return dst[:start], t.vocabError(id)
		}
		if t.flags[id]&skip == 0 {
			dst = c.add(dst, t, id)
		}
	}
	dst = c.flush(dst, t.decoder)
	if len(t.decoder.trim) > 0 {
		dst = append(dst[:start], t.decoder.trimmed(dst[start:])...)
	}
	return dst, nil
}

func (t *Tokenizer) decodedSpelling(id int32) string {
	i, ok := t.addedIndex(id)
	if !ok {
		return string(t.spelling(id))
	}
	a := &t.addedAll[i]
	if !a.Normalized {
		return a.Content
	}
	var n normalizer
	return n.normalize(t.norm, a.Content)
}
