package bpe

import (
	"fmt"
	"reflect"
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

func (f *jsonFile) read(r *jsonReader) error {
	hasModel := false
	for key := range r.Members {
		switch key {
		case "model":
			hasModel = true
			f.readModel(r)
		case "added_tokens":
			r.strict(&f.added)
		case "normalizer":
			r.strict(&f.normalizer)
		case "pre_tokenizer":
			r.strict(&f.preTokenizer)
		case "post_processor":
			r.strict(&f.postProcessor)
		case "decoder":
			r.strict(&f.decoder)
		case "version":
			if version := r.Text(); r.Err() == nil && version != "1.0" {
				r.unsupported("format version %.40q (want \"1.0\")", version)
			}
		case "truncation", "padding":
			if text := r.Raw(); r.Err() == nil && text != "null" {
				r.unsupported("%s; set it to null", key)
			}
		default:
			r.unsupported("unknown top-level field %q", key)
		}
	}
	if err := r.end(); err != nil {
		return err
	}
	if !hasModel {
		return fmt.Errorf("%w: model is missing", ErrCorrupt)
	}
	return nil
}

// readModel reads the vocabulary and the merges directly into tables. It decodes the other members
// in the same way as the method strict.
func (f *jsonFile) readModel(r *jsonReader) {
	var hasVocab, hasMerges bool
	var early *strictjson.Mark // the position of the merges if they come before the vocabulary
	spec := reflect.ValueOf(&f.model).Elem()
	fields := fieldsOf(spec.Type())
	for key := range r.Members {
		switch key {
		case "vocab":
			hasVocab = true
			f.readVocab(r)
		case "merges":
			if hasMerges = true; hasVocab {
				f.readMerges(r)
			} else {
				r.Kind()
				early = new(r.Mark())
			}
		case "type":
			r.strict(&f.model.Type)
			if r.Err() == nil && f.model.Type != "BPE" {
				r.unsupported("model %.40q", f.model.Type)
			}
		case "fuse_unk", "byte_fallback", "ignore_merges":
			if !r.Null() {
				r.decodeField(spec, fields, key)
			}
		default:
			r.decodeField(spec, fields, key)
		}
	}
	switch {
	case r.Err() != nil:
		return
	case hasVocab && hasMerges:
	case f.model.Type == "":
		r.unsupported("model without a type, and without vocab or merges")
	default:
		r.failf("model without vocab or merges")
	}
	if early != nil && r.Err() == nil {
		end := r.Mark()
		r.Return(*early)
		if f.readMerges(r); r.Err() == nil {
			r.Return(end)
		}
	}
	if err := f.model.check(); err != nil {
		r.FailWith(err)
	}
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

func (f *jsonFile) readVocab(r *jsonReader) {
	if r.Kind() == '[' {
		r.unsupported("model Unigram (the vocabulary is a list)")
	}
	for text := range r.Pairs { // pieces.add detects duplicate names
		id := r.id()
		switch {
		case r.Err() != nil:
		case len(text) > maxPieceLen:
			r.failf("token of %d bytes (limit %d)", len(text), maxPieceLen)
		case !f.pieces.add(text, id):
			r.failf("duplicate token %q in the vocabulary", text)
		case f.pieces.len() > maxID:
			r.failf("more than %d tokens", maxID)
		}
	}
}

// After sampleMerges merges, readMerges estimates the total number of merges and allocates memory
// for all of them.
const sampleMerges = 1 << 10

// readMerges parses the merges. All merges must have the same format, either "a b" or ["a", "b"].
func (f *jsonFile) readMerges(r *jsonReader) {
	var joined []byte
	made := 0 // index of the piece that the last merge made; most merges make that piece or the next one
	kind := byte(0)
	begin := r.Offset()
	for range r.Elements {
		if c := r.Kind(); kind == 0 {
			kind = c
		} else if kind != c {
			r.failf("the merge is not in the format of the first merge")
			break
		}
		start := r.Offset()
		var cut int
		joined, cut = readMerge(r, joined[:0])
		if r.Err() != nil {
			break
		}
		if cut < 0 {
			continue
		}
		a, ok1 := f.pieces.getBytes(joined[:cut])
		b, ok2 := f.pieces.getBytes(joined[cut:])
		made = f.pieces.findNear(joined, made)
		c, ok3 := f.pieces.id(made)
		if !ok1 || !ok2 || !ok3 {
			r.FailAt(start, fmt.Sprintf("merge %d (%.40q, %.40q): a part or the result is not in the vocabulary", len(f.merges), joined[:cut], joined[cut:]))
		}
		if len(f.merges) > maxID {
			r.failf("more than %d merges", maxID)
		}
		f.merges = append(f.merges, merge{a, b, c, uint32(len(f.merges))})
		if len(f.merges) == sampleMerges && r.Err() == nil {
			f.merges = slices.Grow(f.merges, (len(r.b)-r.Offset())*sampleMerges/(r.Offset()-begin))
		}
	}
}

// readMerge appends both sides of a merge to joined. The result cut is the position of the second
// side in joined, or -1 for a version comment.
func readMerge(r *jsonReader, joined []byte) (_ []byte, cut int) {
	start := r.Offset()
	if r.Kind() == '"' {
		line := r.Text()
		a, b, ok := strings.Cut(line, " ")
		switch {
		case r.Err() != nil:
		case strings.HasPrefix(line, "#version"):
			return joined, -1
		case !ok || strings.IndexByte(b, ' ') >= 0:
			r.FailAt(start, fmt.Sprintf("merge %.80q is not a pair of tokens", line))
		}
		return append(append(joined, a...), b...), len(a)
	}
	sides := 0
	for range r.Elements {
		if sides++; sides == 2 {
			cut = len(joined)
		}
		joined = append(joined, r.Text()...)
	}
	if r.Err() == nil && sides != 2 {
		r.FailAt(start, fmt.Sprintf("a merge of %d tokens (want 2)", sides))
	}
	return joined, cut
}
