package bpe

import (
	"bytes"
	"fmt"
	"slices"
)

type modelSpec struct {
	Type         string   `json:"type,omitempty"`
	Dropout      *float64 `json:"dropout"`
	UnkToken     *string  `json:"unk_token"`
	Prefix       *string  `json:"continuing_subword_prefix"`
	Suffix       *string  `json:"end_of_word_suffix"`
	FuseUnk      bool     `json:"fuse_unk,omitempty"`
	ByteFallback bool     `json:"byte_fallback,omitempty"`
	IgnoreMerges bool     `json:"ignore_merges,omitempty"`
}

// maxOptionBytes limits the total size of a model's options.
const maxOptionBytes = 64 << 10

// readModel parses the vocabulary and the merges directly into tables, and the rest with strict.
func (f *jsonFile) readModel(r *jsonReader) error {
	if r.peek() != '{' {
		return r.unexpected("the model")
	}
	var hasVocab, hasMerges bool
	var laterMerges *jsonReader // merges that come before the vocabulary
	options := []byte{'{'}
	err := r.object(func(key string) error {
		switch key {
		case "vocab":
			if hasVocab {
				return r.errorf("duplicate field %q", key)
			}
			hasVocab = true
			if r.peek() == '[' {
				return unsupported("model Unigram (the vocabulary is a list)")
			}
			return f.readVocab(r)
		case "merges":
			if hasMerges {
				return r.errorf("duplicate field %q", key)
			}
			hasMerges = true
			if hasVocab {
				return f.readMerges(r)
			}
			raw, err := r.raw()
			laterMerges = &jsonReader{b: r.b[:r.i], i: r.i - len(raw)}
			return err
		}
		raw, err := r.raw()
		if err == nil && key == "type" { // checked first, because the rest is only valid for BPE
			err = checkModelType(raw)
		}
		if err != nil {
			return err
		}
		if len(options)+len(key)+len(raw) > maxOptionBytes {
			return r.errorf("model options have more than %d bytes", maxOptionBytes)
		}
		if string(raw) == "null" && (key == "fuse_unk" || key == "byte_fallback" || key == "ignore_merges") {
			raw = []byte("false")
		}
		if len(options) > 1 {
			options = append(options, ',')
		}
		options = append(append(appendJSONString(options, key), ':'), raw...)
		return nil
	})
	if err != nil {
		return err
	}
	if err := strict(append(options, '}'), "model", &f.model); err != nil {
		return err
	}
	if !hasVocab || !hasMerges {
		if f.model.Type == "" {
			return unsupported("model without type, vocab and merges")
		}
		return fmt.Errorf("%w: model without vocab or merges", ErrCorrupt)
	}
	if laterMerges != nil {
		if err := f.readMerges(laterMerges); err != nil {
			return err
		}
	}
	return f.model.check()
}

func checkModelType(raw []byte) error {
	var kind string
	if err := strict(raw, "model: type", &kind); err != nil {
		return err
	}
	if kind != "BPE" {
		return unsupported("model %.40q", kind)
	}
	return nil
}

func (m *modelSpec) check() error {
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return unsupported("dropout %v", *m.Dropout)
	case m.Prefix != nil && *m.Prefix != "":
		return unsupported("continuing_subword_prefix %q", *m.Prefix)
	case m.Suffix != nil && *m.Suffix != "":
		return unsupported("end_of_word_suffix %q", *m.Suffix)
	}
	return nil
}

func (f *jsonFile) readVocab(r *jsonReader) error {
	if err := r.expect('{'); err != nil {
		return err
	}
	for first := true; ; {
		ok, err := r.more(&first, '}')
		if err != nil || !ok {
			return err
		}
		text, err := r.str()
		if err != nil {
			return err
		}
		if len(text) > maxPieceLen {
			return r.errorf("token of %d bytes (limit %d)", len(text), maxPieceLen)
		}
		key := text
		if err := r.expect(':'); err != nil {
			return err
		}
		id, err := r.id() // does not touch the string
		if err != nil {
			return err
		}
		if !f.pieces.add(key, id) {
			return r.errorf("duplicate token %q in the vocabulary", key)
		}
		if f.pieces.len() > maxID {
			return r.errorf("more than %d tokens", maxID)
		}
	}
}

// sampleMerges is the number of merges after which memory for all merges is allocated.
const sampleMerges = 1 << 10

// readMerges parses merges, all in one of the two formats "a b" and ["a", "b"].
func (f *jsonFile) readMerges(r *jsonReader) error {
	if r.peek() != '[' {
		return r.unexpected("the list of merges")
	}
	r.i++
	begin := r.i
	var joined []byte
	made := 0 // the piece of the last merge; most merges make the same piece or the next one
	kind := byte(0)
	for first := true; ; {
		ok, err := r.more(&first, ']')
		if err != nil || !ok {
			return err
		}
		if c := r.peek(); kind == 0 {
			kind = c
		} else if kind != c {
			return r.unexpected(fmt.Sprintf("%q as the first merge", kind))
		}
		start := r.i
		var cut int
		if joined, cut, err = readMerge(r, joined[:0]); err != nil {
			return err
		}
		if cut < 0 {
			continue
		}
		a, ok1 := f.pieces.getBytes(joined[:cut])
		b, ok2 := f.pieces.getBytes(joined[cut:])
		made = f.pieces.findNear(joined, made)
		c, ok3 := f.pieces.id(made)
		if !ok1 || !ok2 || !ok3 {
			r.i = start
			return r.errorf("merge %d (%.40q, %.40q) with a token that is not in the vocabulary", len(f.merges), joined[:cut], joined[cut:])
		}
		if len(f.merges) > maxID {
			return r.errorf("more than %d merges", maxID)
		}
		f.merges = append(f.merges, merge{a, b, c, uint32(len(f.merges))})
		if len(f.merges) == sampleMerges { // estimate the total from these
			f.merges = slices.Grow(f.merges, (len(r.b)-r.i)*sampleMerges/(r.i-begin))
		}
	}
}

// readMerge appends both sides of a merge to joined. cut is the position of the second side, or -1
// if the line is a version comment.
func readMerge(r *jsonReader, joined []byte) (_ []byte, cut int, err error) {
	start := r.i
	switch r.peek() {
	case '"':
		line, err := r.str()
		if err != nil {
			return nil, 0, err
		}
		if bytes.HasPrefix(line, []byte("#version")) {
			return joined, -1, nil
		}
		a, b, ok := bytes.Cut(line, []byte{' '})
		if !ok || bytes.IndexByte(b, ' ') >= 0 {
			r.i = start
			return nil, 0, r.errorf("merge %.80q is not a pair of tokens", line)
		}
		return append(append(joined, a...), b...), len(a), nil
	case '[':
		r.i++
	default:
		return nil, 0, r.unexpected("a merge")
	}
	for k := range 2 {
		if k == 1 {
			if err := r.expect(','); err != nil {
				return nil, 0, err
			}
			cut = len(joined)
		}
		side, err := r.str()
		if err != nil {
			return nil, 0, err
		}
		joined = append(joined, side...)
	}
	return joined, cut, r.expect(']')
}
