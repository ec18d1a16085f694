package bpe

import (
	"strings"
	"unicode/utf8"
)

// A charText makes the text of tokens that come one by one, for a vocabulary of
// characters. The bytes of byte tokens in a row are held back until another token
// ends them: they become text together, or each of them U+FFFD.
type charText struct {
	raw   bool   // nothing is held back: bytes are wanted, and not text
	seen  bool   // a token has been
	later bool   // a token, or a run of bytes, has become text
	run   []byte // bytes of byte tokens in a row
}

// add appends the text of id, which has a token that is not left out.
func (c *charText) add(dst []byte, t *Tokenizer, id int32) []byte {
	d := t.decoder
	first := !c.seen
	c.seen = true
	if d.first && !c.later {
		return c.addFirst(dst, d, applySteps(t.decodedSpelling(id), d.before, first))
	}
	text := t.bytes[t.off[id]:t.off[id+1]]
	if t.flags[id]&flagByte != 0 && !c.raw {
		c.run = append(c.run, text...)
		return dst
	}
	dst = c.flush(dst, d)
	c.later = true
	return append(dst, text...)
}

// addFirst appends the text of the token that is s before ByteFallback, and may be
// the first after it.
func (c *charText) addFirst(dst []byte, d *decoder, s string) []byte {
	if b, ok := spelledByte(s); ok && d.fallback {
		if !c.raw {
			c.run = append(c.run, b)
			return dst
		}
		c.later = true
		return append(dst, b)
	}
	dst = c.flush(dst, d)
	dst = append(dst, applySteps(s, d.after, !c.later)...)
	c.later = true
	return dst
}

// flush appends the text of the bytes that were held back.
func (c *charText) flush(dst []byte, d *decoder) []byte {
	switch {
	case len(c.run) == 0:
		return dst
	case !utf8.Valid(c.run):
		for i := range c.run {
			dst = append(dst, applySteps(replacement, d.after, !c.later && i == 0)...)
		}
	case len(d.after) > 0:
		dst = append(dst, applySteps(string(c.run), d.after, !c.later)...)
	default:
		dst = append(dst, c.run...)
	}
	c.run, c.later = c.run[:0], true
	return dst
}

// trimmed returns text, the start of a joined text, without what trim takes off.
func (d *decoder) trimmed(text []byte) []byte {
	for i := range d.trim {
		step := &d.trim[i]
		for n := step.n; n > 0 && strings.HasPrefix(stringOf(text), step.from); n-- {
			text = text[len(step.from):]
		}
	}
	return text
}

// appendToken appends what the token spelled so decodes to where it is not the
// first, and reports whether it stands for a byte.
func (d *decoder) appendToken(dst []byte, spelled string) (_ []byte, isByte bool) {
	s := applySteps(spelled, d.before, false)
	if b, ok := spelledByte(s); ok && d.fallback {
		return append(dst, b), true
	}
	return append(dst, applySteps(s, d.after, false)...), false
}

// appendChars is AppendBytes, or AppendText without CleanUp, for a vocabulary of
// characters.
func (t *Tokenizer) appendChars(dst []byte, ids []int32, opts DecodeOptions, raw bool) ([]byte, error) {
	start := len(dst)
	skip := opts.skip()
	var space [64]byte // for a run of bytes, as a rule
	c := charText{raw: raw, run: space[:0]}
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

// appendChars appends to dst the text that ids complete, for a vocabulary of
// characters. What trim may still take off is held back as well.
func (s *Stream) appendChars(dst []byte, ids []int32) ([]byte, error) {
	t := s.tok
	for _, id := range ids {
		if !t.Has(id) {
			return dst, t.vocabError(id)
		}
	}
	skip := s.opts.skip()
	out := s.out(&dst)
	for _, id := range ids {
		if t.flags[id]&skip == 0 {
			*out = s.chars.add(*out, t, id)
		}
	}
	return s.trim(dst), nil
}

// out is where the stream writes: to dst, or, while trim may still take something
// off, to memory of its own.
func (s *Stream) out(dst *[]byte) *[]byte {
	if s.trimmed || len(s.tok.decoder.trim) == 0 {
		return dst
	}
	return &s.buf
}

// trim appends to dst what is left of the start of the text, where that is settled.
func (s *Stream) trim(dst []byte) []byte {
	rest := s.tok.decoder.trimmed(s.buf)
	if len(rest) == 0 {
		return dst
	}
	dst = append(dst, rest...)
	s.buf, s.trimmed = s.buf[:0], true
	return dst
}

// decodedSpelling returns the spelling of id that decoding begins with.
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
