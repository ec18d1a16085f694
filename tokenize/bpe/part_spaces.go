package bpe

// The pre-tokenizers of vocabularies that spell characters: nothing, Metaspace, or
// a Split by the space.

// preParts returns the pre-tokenizers one after the other.
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
		return s.Pretokenizers, nil
	}
	return []part{f.preTokenizer.part}, nil
}

// spellsChars reports whether the vocabulary spells characters, and not bytes.
func (f *jsonFile) spellsChars() (bool, error) {
	parts, err := f.preParts()
	if err != nil || !f.model.ByteFallback && f.model.UnkToken == nil {
		return false, err
	}
	return len(parts) == 0 || parts[len(parts)-1].name() != "ByteLevel", nil
}

// spaces reads the pre-tokenizer of a vocabulary that spells characters.
func (f *jsonFile) spaces(t *Tokenizer) error {
	parts, err := f.preParts()
	if err != nil {
		return err
	}
	t.family = FamilyChars
	for i, p := range parts {
		switch name := p.name(); {
		case name == "Metaspace" && i == 0:
			m, err := readMetaspace(p, "pre_tokenizer")
			if err != nil {
				return err
			}
			t.space = m
			if m.split {
				t.stages = append(t.stages, stage{cut: m.cut})
			}
		case name == "Split":
			var s splitSpec
			if err := strict(p.raw, "pre_tokenizer", &s); err != nil {
				return err
			}
			if s.Pattern.String == nil || *s.Pattern.String != " " || s.Behavior != "MergedWithPrevious" || s.Invert {
				return unsupported("pre_tokenizer Split in a vocabulary of characters, other than by a space that is merged with what is before it")
			}
			t.stages = append(t.stages, stage{cut: splitAfterSpace})
		default:
			return unsupported("pre_tokenizer %s in place %d of %d in a vocabulary of characters", name, i+1, len(parts))
		}
	}
	return f.checkFirst(t)
}

// checkFirst refuses what makes it unclear where a text begins: the reference
// engine asks which place of the raw text a section comes from.
func (f *jsonFile) checkFirst(t *Tokenizer) error {
	if t.space == nil || t.space.prepend != prependFirst || len(t.norm) == 0 {
		return nil
	}
	for _, a := range f.added {
		if a.Normalized {
			return unsupported("pre_tokenizer Metaspace with prepend_scheme first behind a normalizer, with added token %q, which is normalized", a.Content)
		}
	}
	for _, s := range t.norm {
		if s.kind == stepReplace && (s.to == "" || len([]rune(s.from)) > 1) {
			return unsupported("pre_tokenizer Metaspace with prepend_scheme first behind a Replace of %q by %q", s.from, s.to)
		}
	}
	return nil
}
