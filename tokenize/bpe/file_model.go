package bpe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
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
	var hasVocab, hasMerges, later bool
	var laterMerges strictjson.Mark // merges that come before the vocabulary
	options := []byte{'{'}
	err := r.object(func(key string) error {
		switch key {
		case "vocab":
			hasVocab = true
			if r.Kind() == '[' {
				return unsupported("model Unigram (the vocabulary is a list)")
			}
			return f.readVocab(r)
		case "merges":
			hasMerges = true
			if hasVocab {
				return f.readMerges(r)
			}
			r.Kind()
			later, laterMerges = true, r.Mark()
			return r.skip()
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
	if later {
		end := r.Mark()
		r.Return(laterMerges)
		if err := f.readMerges(r); err != nil {
			return err
		}
		r.Return(end)
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
	for text := range r.Pairs { // the table finds equal names
		if len(text) > maxPieceLen {
			return r.errorf("token of %d bytes (limit %d)", len(text), maxPieceLen)
		}
		id, err := r.id()
		if err != nil {
			return err
		}
		if !f.pieces.add(text, id) {
			return r.errorf("duplicate token %q in the vocabulary", text)
		}
		if f.pieces.len() > maxID {
			return r.errorf("more than %d tokens", maxID)
		}
	}
	return r.fault()
}

// sampleMerges is the number of merges after which memory for all merges is allocated.
const sampleMerges = 1 << 10

// readMerges parses merges, all in one of the two formats "a b" and ["a", "b"].
func (f *jsonFile) readMerges(r *jsonReader) error {
	var joined []byte
	made := 0 // the piece of the last merge; most merges make the same piece or the next one
	kind := byte(0)
	begin := r.Offset()
	for range r.Elements {
		if c := r.Kind(); kind == 0 {
			kind = c
		} else if kind != c {
			return r.errorf("a merge that is not in the format of the first merge")
		}
		start := r.Offset()
		var cut int
		var err error
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
			return errorAt(start, "merge %d (%.40q, %.40q) with a token that is not in the vocabulary", len(f.merges), joined[:cut], joined[cut:])
		}
		if len(f.merges) > maxID {
			return r.errorf("more than %d merges", maxID)
		}
		f.merges = append(f.merges, merge{a, b, c, uint32(len(f.merges))})
		if len(f.merges) == sampleMerges { // estimate the total from these
			f.merges = slices.Grow(f.merges, (len(r.b)-r.Offset())*sampleMerges/(r.Offset()-begin))
		}
	}
	return r.fault()
}

// readMerge appends both sides of a merge to joined. cut is the position of the second side, or -1
// if the line is a version comment.
func readMerge(r *jsonReader, joined []byte) (_ []byte, cut int, err error) {
	start := r.Offset()
	if r.Kind() == '"' {
		line := r.Text()
		a, b, ok := strings.Cut(line, " ")
		switch {
		case r.Err() != nil:
			return nil, 0, r.fault()
		case strings.HasPrefix(line, "#version"):
			return joined, -1, nil
		case !ok || strings.IndexByte(b, ' ') >= 0:
			return nil, 0, errorAt(start, "merge %.80q is not a pair of tokens", line)
		}
		return append(append(joined, a...), b...), len(a), nil
	}
	sides := 0
	for range r.Elements {
		if sides++; sides == 2 {
			cut = len(joined)
		}
		joined = append(joined, r.Text()...)
	}
	if r.Err() == nil && sides != 2 {
		return nil, 0, errorAt(start, "a merge of %d tokens", sides)
	}
	return joined, cut, r.fault()
}
