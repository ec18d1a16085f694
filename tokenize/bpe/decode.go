package bpe

import (
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// DecodeOptions says how to decode ids. The zero value prints every token.
type DecodeOptions struct {
	// SkipSpecial leaves special tokens out. The reference engine knows them by their
	// spelling: one that is normalized to another content stays.
	SkipSpecial bool
	// CleanUp removes the space before punctuation and English contractions, as
	// Python's tokenizers do where clean_up_tokenization_spaces is set (Llama 3).
	// Applied by AppendText only.
	CleanUp bool
}

// skip returns the flag of the tokens that are left out.
func (o DecodeOptions) skip() uint8 {
	if o.SkipSpecial {
		return flagSkip
	}
	return 0
}

// AppendBytes appends the bytes of ids to dst. They are not valid UTF-8 where a
// character was cut. An id without a token is an error that wraps ErrVocab; dst
// is then returned as it was.
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

// AppendText appends the text of ids to dst, with U+FFFD for what is not valid
// UTF-8, by the rule of Python and Rust: one for each maximal subpart, or, in
// vocabularies of characters, for each token of a run of byte tokens.
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

// runs yields the ids before, between and after the special ones.
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

// CleanUp is what Python's transformers calls clean_up_tokenization: ten
// replacements, one after the other.
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

// A Stream decodes ids that arrive in pieces. What it has returned up to any
// moment is a prefix of the whole text: what later ids could still change is held
// back. That is a part of a character, or, in vocabularies of characters, the byte
// tokens at the end. Not safe for concurrent use; a Stream per reply.
type Stream struct {
	tok  *Tokenizer
	opts DecodeOptions
	buf  []byte // what is held back; of byte-level vocabularies at most three bytes

	chars   charText // of vocabularies of characters
	trimmed bool     // the start of the text is settled
}

// NewStream returns a Stream. DecodeOptions.CleanUp is ignored: it needs the
// text that follows.
func (t *Tokenizer) NewStream(opts DecodeOptions) *Stream { return &Stream{tok: t, opts: opts} }

// AppendText appends to dst the text that ids complete. After an error the stream
// is as it was before.
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

// appendRuns appends the text of ids, of which some are special and left out: no
// character goes across them.
func (s *Stream) appendRuns(dst []byte, ids []int32) ([]byte, error) {
	for _, id := range ids { // all of them first, so that an error changes nothing
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
		dst, _ = s.AppendText(dst, run...) // every id was looked at
	}
	return dst, nil
}

// AppendRest appends what was held back, as U+FFFD, and makes the stream ready
// for another text.
func (s *Stream) AppendRest(dst []byte) []byte {
	if s.tok.decoder != nil {
		return s.appendCharsRest(dst)
	}
	dst = appendLossy(dst, s.buf)
	s.buf = s.buf[:0]
	return dst
}
