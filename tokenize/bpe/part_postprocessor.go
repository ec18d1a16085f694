package bpe

import (
	"fmt"
	"math"
)

// buildPostProcessor sets t.prefix and t.suffix from the post-processor.
func (t *Tokenizer) buildPostProcessor(f *jsonFile) error {
	parts := []part{f.postProcessor}
	if f.postProcessor.Type == "Sequence" {
		var s struct {
			Type       string `json:"type"`
			Processors []part `json:"processors"`
		}
		if err := strict(f.postProcessor.raw, "post_processor", &s); err != nil {
			return err
		}
		parts = s.Processors
	}
	templates := 0
	for _, p := range parts {
		switch p.name() {
		case "null":
		case "ByteLevel": // ByteLevel affects only offsets
			if err := strict(p.raw, "post_processor", new(byteLevelSpec)); err != nil {
				return err
			}
		case "TemplateProcessing":
			if templates++; templates > 1 {
				return unsupported("post_processor with %d templates", templates) // the reference engine panics
			}
			if err := t.addTemplate(p.raw); err != nil {
				return err
			}
		default:
			return unsupported("post_processor %s", p.name())
		}
	}
	return nil
}

type templateSpec struct {
	Type          string          `json:"type"`
	Single        []templateToken `json:"single"`
	Pair          []templateToken `json:"pair"`
	SpecialTokens map[string]struct {
		ID     string   `json:"id"`
		IDs    []int64  `json:"ids"`
		Tokens []string `json:"tokens"`
	} `json:"special_tokens"`

	// Command R's file has these members, which belong to ByteLevel. They have no effect here.
	AddPrefixSpace bool `json:"add_prefix_space,omitempty"`
	TrimOffsets    bool `json:"trim_offsets,omitempty"`
	UseRegex       bool `json:"use_regex,omitempty"`
}

type templateToken struct {
	SpecialToken *templatePlace `json:"SpecialToken"`
	Sequence     *templatePlace `json:"Sequence"`
}

type templatePlace struct {
	ID     string `json:"id"`
	TypeID uint32 `json:"type_id"`
}

// addTemplate sets t.prefix and t.suffix from a TemplateProcessing.
func (t *Tokenizer) addTemplate(raw []byte) error {
	var s templateSpec
	if err := strict(raw, "post_processor", &s); err != nil {
		return err
	}
	for _, e := range s.Pair { // Pair is not used, but an invalid Pair is still an error
		if (e.SpecialToken == nil) == (e.Sequence == nil) || e.Sequence != nil && e.Sequence.ID != "A" && e.Sequence.ID != "B" {
			return fmt.Errorf("%w: post_processor: unknown element in pair", ErrCorrupt)
		}
	}
	var prefix, suffix []int32
	texts := 0
	for _, e := range s.Single {
		switch {
		case e.Sequence != nil && e.SpecialToken == nil && e.Sequence.ID == "A":
			texts++
		case e.SpecialToken != nil && e.Sequence == nil:
			tok, ok := s.SpecialTokens[e.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("%w: post_processor: special token %q is not defined", ErrCorrupt, e.SpecialToken.ID)
			}
			for _, id := range tok.IDs {
				if id < 0 || id > math.MaxInt32 || !t.Has(int32(id)) {
					return fmt.Errorf("%w: post_processor: special token %q: id %d is not in the vocabulary", ErrCorrupt, e.SpecialToken.ID, id)
				}
				if texts == 0 {
					prefix = append(prefix, int32(id))
				} else {
					suffix = append(suffix, int32(id))
				}
			}
		default:
			return unsupported("post_processor TemplateProcessing with an unknown element")
		}
	}
	if texts != 1 {
		return unsupported("post_processor TemplateProcessing that inserts the text %d times (want 1)", texts)
	}
	t.prefix, t.suffix = prefix, suffix
	return nil
}
