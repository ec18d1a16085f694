package bpe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

type modelSpec struct {
	Type         string   `json:"type"`
	Dropout      *float64 `json:"dropout"`
	UnkToken     *string  `json:"unk_token"`
	Prefix       *string  `json:"continuing_subword_prefix"`
	Suffix       *string  `json:"end_of_word_suffix"`
	FuseUnk      bool     `json:"fuse_unk"`
	ByteFallback bool     `json:"byte_fallback"`
	IgnoreMerges bool     `json:"ignore_merges"`
}

// readModel reads the model: vocabulary and merges straight into tables, the rest
// strictly.
func (f *jsonFile) readModel(r *jsonReader) error {
	var seen []string
	var laterMerges *jsonReader
	rest := []byte{'{'}
	err := r.object(func(key string) error {
		if slices.Contains(seen, key) {
			return r.errorf("%q twice", key)
		}
		seen = append(seen, key)
		switch key {
		case "vocab":
			if r.peek() != '{' {
				return unsupported("model with a list for a vocabulary (Unigram)")
			}
			return f.readVocab(r)
		case "merges":
			if slices.Contains(seen, "vocab") {
				return f.readMerges(r)
			}
			raw, err := r.raw()
			laterMerges = &jsonReader{b: r.b[:r.i], i: r.i - len(raw)}
			return err
		}
		raw, err := r.raw()
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		name, _ := json.Marshal(key)
		rest = append(append(append(rest, name...), ':'), raw...)
		return err
	})
	if err != nil {
		return err
	}
	// The kind first: what follows is only of use for BPE.
	var kind struct {
		Type string `json:"type"`
	}
	rest = append(rest, '}')
	if err := json.Unmarshal(rest, &kind); err != nil {
		return fmt.Errorf("%w: model: %w", ErrCorrupt, err)
	}
	if kind.Type != "BPE" && kind.Type != "" {
		return unsupported("model %s", kind.Type)
	}
	for _, key := range [...]string{"vocab", "merges"} {
		if !slices.Contains(seen, key) {
			if kind.Type == "" {
				return unsupported("model without type and %s", key)
			}
			return fmt.Errorf("%w: model without %s", ErrCorrupt, key)
		}
	}
	if err := strict(rest, "model", &f.model); err != nil {
		return err
	}
	if laterMerges != nil {
		if err := f.readMerges(laterMerges); err != nil {
			return err
		}
	}
	return f.model.check()
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
			return r.errorf("token of %d bytes, over %d", len(text), maxPieceLen)
		}
		key := text
		if err := r.expect(':'); err != nil {
			return err
		}
		id, err := r.id() // leaves the string alone
		if err != nil {
			return err
		}
		if !f.pieces.add(key, id) {
			return r.errorf("token %q twice in the vocabulary", key)
		}
		if f.pieces.len() > maxID {
			return r.errorf("more than %d tokens", maxID)
		}
	}
}

// readMerges reads merges in either format: "a b" or ["a", "b"].
func (f *jsonFile) readMerges(r *jsonReader) error {
	if err := r.expect('['); err != nil {
		return err
	}
	f.merges = make([]merge, 0, 2*f.pieces.len())
	var joined []byte
	for first := true; ; {
		ok, err := r.more(&first, ']')
		if err != nil || !ok {
			return err
		}
		var cut int
		if joined, cut, err = readMerge(r, joined[:0]); err != nil {
			return err
		}
		if cut < 0 {
			continue
		}
		a, ok1 := f.pieces.getBytes(joined[:cut])
		b, ok2 := f.pieces.getBytes(joined[cut:])
		c, ok3 := f.pieces.getBytes(joined)
		if !ok1 || !ok2 || !ok3 {
			return r.errorf("merge %d (%q, %q) of what is not in the vocabulary", len(f.merges), joined[:cut], joined[cut:])
		}
		if len(f.merges) > maxID {
			return r.errorf("more than %d merges", maxID)
		}
		f.merges = append(f.merges, merge{a, b, c, uint32(len(f.merges))})
	}
}

// readMerge appends both sides of a merge to joined; cut is where the second
// begins, or -1 where the line is a version and not a merge.
func readMerge(r *jsonReader, joined []byte) (_ []byte, cut int, err error) {
	if r.peek() == '"' {
		line, err := r.str()
		if err != nil {
			return nil, 0, err
		}
		if bytes.HasPrefix(line, []byte("#version")) {
			return joined, -1, nil
		}
		a, b, ok := bytes.Cut(line, []byte{' '})
		if !ok || bytes.IndexByte(b, ' ') >= 0 {
			return nil, 0, r.errorf("merge %q is not two tokens", line)
		}
		return append(append(joined, a...), b...), len(a), nil
	}
	if err := r.expect('['); err != nil {
		return nil, 0, err
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
