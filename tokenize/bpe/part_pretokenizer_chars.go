package bpe

import "strings"

// This file parses the pre-tokenizers for vocabularies of characters: none, Metaspace, Split by a
// string, and Digits.

// preParts returns the pre-tokenizers in the order in which they are applied.
func (f *jsonFile) preParts() ([]part, error) {
	switch f.preTokenizer.name() {
	case "null":
		return nil, nil
	case "Sequence":
		var s struct {
			Type          string `json:"type"`
			Pretokenizers []part `json:"pretokenizers"`
		}
		if err := strict(f.preTokenizer.raw, "pre_tokenizer", &s); err != nil {
			return nil, err
		}
		if n := len(s.Pretokenizers); n > maxStages {
			return nil, unsupported("pre_tokenizer Sequence of %d parts (limit %d)", n, maxStages)
		}
		return s.Pretokenizers, nil
	}
	return []part{f.preTokenizer}, nil
}

// spellsChars reports whether the vocabulary is spelled in characters rather than bytes.
func (f *jsonFile) spellsChars() (bool, error) {
	parts, err := f.preParts()
	if err != nil || !f.model.ByteFallback && f.model.UnkToken == nil {
		return false, err
	}
	return len(parts) == 0 || parts[len(parts)-1].name() != "ByteLevel", nil
}

func (f *jsonFile) spaces(t *Tokenizer) error {
	parts, err := f.preParts()
	if err != nil {
		return err
	}
	t.family = FamilyChars
	for i, p := range parts {
		st := stage{}
		switch name := p.name(); {
		case name == "Metaspace" && i == 0:
			if t.space, err = readMetaspace(p, "pre_tokenizer"); err == nil && t.space.split {
				st.cut = t.space.cut
			}
		case name == "Split":
			if st, err = readSplit(p); err == nil && st.expr != "" {
				err = unsupported("pre_tokenizer Split by a regular expression in a vocabulary of characters")
			}
			if st.text == " " && !st.invert && t.leavesNoSpace() {
				st = stage{} // never matches, because no space is left
			}
		case name == "Digits":
			st, err = readDigits(p)
		default:
			return unsupported("pre_tokenizer %s at position %d of %d in a vocabulary of characters", name, i+1, len(parts))
		}
		if err != nil {
			return err
		}
		if st.cut != nil || st.pattern != nil {
			t.stages = append(t.stages, st)
		}
	}
	return f.checkFirst(t)
}

// leavesNoSpace reports whether the normalizer and Metaspace replace all spaces.
func (t *Tokenizer) leavesNoSpace() bool {
	if t.space != nil {
		return t.space.mark != " "
	}
	none := false
	for i := range t.norm {
		s := &t.norm[i]
		if s.kind == stepReplace && s.from == " " {
			none = true
		}
		none = none && !strings.Contains(s.to, " ")
	}
	return none
}

// checkFirst rejects a file if, after normalization, it can be unclear whether a section begins the
// text. The reference engine decides this by the section's position in the raw text.
func (f *jsonFile) checkFirst(t *Tokenizer) error {
	if t.space == nil || t.space.prepend != prependFirst || len(t.norm) == 0 {
		return nil
	}
	for _, a := range f.added {
		if a.Normalized {
			return unsupported("pre_tokenizer Metaspace with prepend_scheme \"first\" after a normalizer, with normalized added token %q", a.Content)
		}
	}
	for _, s := range t.norm {
		if s.kind == stepReplace && (s.to == "" || len([]rune(s.from)) > 1) {
			return unsupported("pre_tokenizer Metaspace with prepend_scheme \"first\" after a Replace of %q by %q", s.from, s.to)
		}
	}
	return nil
}
