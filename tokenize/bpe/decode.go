package bpe

import (
	"slices"
	"unicode/utf8"
)

// DecodeOptions configures decoding. The zero value decodes every token.
type DecodeOptions struct {
	// If SkipSpecial is true, special tokens are skipped. Like the reference engine, decoding
	// does not skip a special token if normalization changes the content of the token.
	SkipSpecial bool
}

func (o DecodeOptions) skip() uint8 {
	if o.SkipSpecial {
		return flagSkip
	}
	return 0
}

// AppendBytes appends the bytes of the given tokens to dst. If ids contains only a part of a
// character, the bytes are not valid UTF-8. If an id has no token, AppendBytes returns dst
// unchanged and an error that wraps ErrVocab.
func (t *Tokenizer) AppendBytes(dst []byte, ids []int32, opts DecodeOptions) ([]byte, error) {
	if t.decoder != nil {
		return t.appendChars(dst, ids, opts, true)
	}
	start := len(dst)
	skip := opts.skip()
	flags, off, text := t.flags, t.off[1:], t.bytes
	for _, id := range ids {
		if uint(id) >= uint(len(flags)) || flags[id]&flagUsed == 0 {
			return dst[:start], t.vocabError(id)
		}
		if flags[id]&skip != 0 {
			continue
		}
		dst = append(dst, text[t.off[id]:off[id]]...)
	}
	return dst, nil
}

// AppendText appends the text of the given tokens to dst. As in Python and Rust, each maximal
// subpart of invalid UTF-8 becomes one U+FFFD. With a vocabulary of characters, each byte token
// in a sequence of invalid UTF-8 becomes one U+FFFD.
func (t *Tokenizer) AppendText(dst []byte, ids []int32, opts DecodeOptions) ([]byte, error) {
	start := len(dst)
	var err error
	if t.splitAtSpecial && opts.SkipSpecial {
		for n := 0; n >= 0; ids = ids[n+1:] {
			run := ids
			if n = slices.IndexFunc(ids, t.IsSpecial); n >= 0 {
				run = ids[:n]
			}
			if dst, err = t.AppendText(dst, run, DecodeOptions{}); err != nil {
				return dst[:start], err
			}
		}
	} else if t.decoder != nil {
		dst, err = t.appendChars(dst, ids, opts, false)
	} else {
		dst, err = t.AppendBytes(dst, ids, opts)
	}
	if err != nil {
		return dst, err
	}
	if !utf8.Valid(dst[start:]) {
		dst = appendLossy(dst[:start], string(dst[start:]))
	}
	return dst, nil
}
