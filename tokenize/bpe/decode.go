package bpe

import (
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// DecodeOptions configures decoding. The zero value decodes every token.
type DecodeOptions struct {
	// SkipSpecial skips special tokens. The reference engine identifies them by their spelling, so
	// a special token that is normalized to another content is not skipped.
	SkipSpecial bool
	// CleanUp removes the space before punctuation and English contractions, as Python's tokenizers
	// do if clean_up_tokenization_spaces is set (Llama 3). Only AppendText applies it.
	CleanUp bool
}

func (o DecodeOptions) skip() uint8 {
	if o.SkipSpecial {
		return flagSkip
	}
	return 0
}

// AppendBytes appends the bytes of ids to dst. They are not valid UTF-8 if a character is cut. An
// id without a token is an error that wraps ErrVocab; dst is then returned unchanged.
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

// AppendText appends the text of ids to dst. Invalid UTF-8 becomes U+FFFD by the rule of Python and
// Rust: one for each maximal subpart, or for each byte token in a vocabulary of characters.
func (t *Tokenizer) AppendText(dst []byte, ids []int32, opts DecodeOptions) ([]byte, error) {
	start := len(dst)
	var err error
	if t.apart && opts.SkipSpecial {
		for run := range t.runs(ids) {
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
	if opts.CleanUp {
		dst = append(dst[:start], CleanUp(string(dst[start:]))...)
	}
	return dst, nil
}

// runs yields the sequences of ids before, between and after special ids.
func (t *Tokenizer) runs(ids []int32) iter.Seq[[]int32] {
	return func(yield func([]int32) bool) {
		for {
			n := slices.IndexFunc(ids, t.IsSpecial)
			if n < 0 {
				yield(ids)
				return
			}
			if !yield(ids[:n]) {
				return
			}
			ids = ids[n+1:]
		}
	}
}

// CleanUp applies the ten replacements of clean_up_tokenization of Python's transformers.
func CleanUp(s string) string {
	for _, r := range [...][2]string{
		{" .", "."},
		{" ?", "?"},
		{" !", "!"},
		{" ,", ","},
		{" ' ", "'"},
		{" n't", "n't"},
		{" 'm", "'m"},
		{" 's", "'s"},
		{" 've", "'ve"},
		{" 're", "'re"},
	} {
		s = strings.ReplaceAll(s, r[0], r[1])
	}
	return s
}

// A Stream decodes ids that arrive in pieces. It holds back text that later ids can change: part of
// a character or, in vocabularies of characters, the byte tokens at the end. So the text returned
// so far is a prefix of the whole text. It is not safe for concurrent use.
type Stream struct {
	tok  *Tokenizer
	opts DecodeOptions
	buf  []byte // held back; at most three bytes in byte-level vocabularies

	chars   charText // for vocabularies of characters
	trimmed bool     // trimming the start of the text is done
}

// NewStream returns a Stream. It ignores DecodeOptions.CleanUp, which needs the text that follows.
func (t *Tokenizer) NewStream(opts DecodeOptions) *Stream { return &Stream{tok: t, opts: opts} }

// AppendText appends to dst the text that ids complete. After an error the stream is unchanged.
func (s *Stream) AppendText(dst []byte, ids ...int32) ([]byte, error) {
	if s.tok.decoder != nil {
		return s.appendChars(dst, ids)
	}
	if s.tok.apart && s.opts.SkipSpecial && slices.ContainsFunc(ids, s.tok.IsSpecial) {
		return s.appendRuns(dst, ids)
	}
	held := len(s.buf)
	buf, err := s.tok.AppendBytes(s.buf, ids, s.opts)
	if err != nil {
		s.buf = buf[:held]
		return dst, err
	}
	whole := len(buf) - incompleteTail(buf)
	dst = appendLossy(dst, buf[:whole])
	s.buf = buf[:copy(buf, buf[whole:])]
	return dst, nil
}

// appendRuns appends the text of ids, some of which are special and skipped.
func (s *Stream) appendRuns(dst []byte, ids []int32) ([]byte, error) {
	for _, id := range ids { // check all ids first, so that an error changes nothing
		if !s.tok.Has(id) {
			return dst, s.tok.vocabError(id)
		}
	}
	first := true
	for run := range s.tok.runs(ids) {
		if !first {
			dst = s.AppendRest(dst)
		}
		first = false
		dst, _ = s.AppendText(dst, run...) // every id was checked
	}
	return dst, nil
}

// AppendRest appends the text held back, as U+FFFD, and resets the stream for another text.
func (s *Stream) AppendRest(dst []byte) []byte {
	if s.tok.decoder != nil {
		return s.appendCharsRest(dst)
	}
	dst = appendLossy(dst, s.buf)
	s.buf = s.buf[:0]
	return dst
}
