package bpe

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// The parts of a tokenizer.json around the model. Each part is a closed set of
// what is implemented; everything else is refused by name.

type addedSpec struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// A part is the form all of them share.
type part struct {
	Type string
	raw  []byte
}

func (p *part) UnmarshalJSON(raw []byte) error {
	var t struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return err
	}
	p.Type, p.raw = t.Type, slices.Clone(raw)
	return nil
}

type (
	normalizerSpec    struct{ part }
	preTokenizerSpec  struct{ part }
	postProcessorSpec struct{ part }
	decoderSpec       struct{ part }
)

// pipeline reads all parts but the post-processor into t.
func (f *jsonFile) pipeline(t *Tokenizer) error {
	var err error
	if t.nfc, err = composes(f.normalizer.part, 0); err != nil {
		return err
	}
	if f.decoder.Type != "ByteLevel" {
		return unsupported("decoder %s", f.decoder.name())
	}
	return f.splits(t)
}

func (p *part) name() string {
	switch {
	case p.raw == nil || string(p.raw) == "null":
		return "null"
	case p.Type == "":
		return "without a type"
	}
	return p.Type
}

// composes reads a normalizer: null, NFC or a sequence of these.
func composes(p part, depth int) (bool, error) {
	switch p.name() {
	case "null":
		return false, nil
	case "NFC":
		return true, nil
	case "Sequence":
		var s struct {
			Type        string `json:"type"`
			Normalizers []part `json:"normalizers"`
		}
		if err := strict(p.raw, "normalizer", &s); err != nil {
			return false, err
		}
		if depth > 0 && len(s.Normalizers) > 0 {
			return false, unsupported("normalizer Sequence inside a Sequence")
		}
		nfc := false
		for _, q := range s.Normalizers {
			c, err := composes(q, depth+1)
			if err != nil {
				return false, err
			}
			nfc = nfc || c
		}
		return nfc, nil
	}
	return false, unsupported("normalizer %s", p.name())
}

type byteLevelSpec struct {
	Type           string `json:"type"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets    bool   `json:"trim_offsets"`
	UseRegex       *bool  `json:"use_regex"`
}

type splitSpec struct {
	Type    string `json:"type"`
	Pattern struct {
		Regex  *string `json:"Regex"`
		String *string `json:"String"`
	} `json:"pattern"`
	Behavior string `json:"behavior"`
	Invert   bool   `json:"invert"`
}

// splits reads the pre-tokenizer: splits by the known patterns, then ByteLevel.
func (f *jsonFile) splits(t *Tokenizer) error {
	parts := []part{f.preTokenizer.part}
	if f.preTokenizer.Type == "Sequence" {
		var s struct {
			Type          string `json:"type"`
			Pretokenizers []part `json:"pretokenizers"`
		}
		if err := strict(f.preTokenizer.raw, "pre_tokenizer", &s); err != nil {
			return err
		}
		parts = s.Pretokenizers
	}
	for i := range parts {
		want := "Split"
		if i == len(parts)-1 {
			want = "ByteLevel"
		}
		switch name := parts[i].name(); {
		case name != "Split" && name != "ByteLevel":
			return unsupported("pre_tokenizer %s", name)
		case name != want:
			return unsupported("pre_tokenizer %s in place %d of %d, want %s", name, i+1, len(parts), want)
		}
	}
	if len(parts) == 0 {
		return unsupported("pre_tokenizer Sequence of nothing")
	}
	var b byteLevelSpec
	if err := strict(parts[len(parts)-1].raw, "pre_tokenizer", &b); err != nil {
		return err
	}
	if b.AddPrefixSpace {
		return unsupported("pre_tokenizer ByteLevel with add_prefix_space")
	}
	regex := b.UseRegex == nil || *b.UseRegex
	parts = parts[:len(parts)-1]
	if regex {
		if len(parts) > 0 {
			return unsupported("pre_tokenizer ByteLevel with use_regex after a Split")
		}
		t.family, t.split = FamilyGPT2, splitGPT2
		return nil
	}
	return t.setPatterns(parts)
}

// setPatterns recognises the patterns of the Split parts.
func (t *Tokenizer) setPatterns(parts []part) error {
	patterns := make([]string, len(parts))
	isolated := true
	for i, p := range parts {
		var s splitSpec
		if err := strict(p.raw, "pre_tokenizer", &s); err != nil {
			return err
		}
		if s.Pattern.Regex == nil {
			return unsupported("pre_tokenizer Split by a string")
		}
		switch {
		case s.Behavior == "Isolated" && !s.Invert:
		case s.Behavior == "Removed" && s.Invert:
			isolated = false
		default:
			return unsupported("pre_tokenizer Split with behavior %q, invert %v", s.Behavior, s.Invert)
		}
		patterns[i] = *s.Pattern.Regex
	}
	if slices.Equal(patterns, []string{patternDeepSeek1, patternDeepSeek2, patternDeepSeek3}) {
		// These leave gaps, so what becomes of a gap matters.
		if !isolated {
			return unsupported("pre_tokenizer Split of DeepSeek with behavior Removed")
		}
		t.family, t.split = FamilyDeepSeek, splitDeepSeek
		return nil
	}
	if len(patterns) != 1 {
		return unsupported("pre_tokenizer with %d Split patterns %q", len(patterns), patterns)
	}
	// Each of these matches every character, so that there are no gaps.
	switch patterns[0] {
	case patternCL100K:
		t.family, t.split = FamilyCL100K, splitCL100K
	case patternLlama3:
		t.family, t.split = FamilyLlama3, splitLlama3
	case patternO200K:
		t.family, t.split = FamilyO200K, splitO200K
	case patternTekken:
		t.family, t.split = FamilyTekken, splitTekken
	case patternKimi:
		// The pattern alone: the cuts before it belong to tiktoken.model.
		t.family, t.split = FamilyKimi, splitKimi
	default:
		return unsupported("pre_tokenizer Split pattern %q", patterns[0])
	}
	return nil
}

// buildPostProcessor reads what is put around a text on request.
func (t *Tokenizer) buildPostProcessor(f *jsonFile) error {
	parts := []part{f.postProcessor.part}
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
		case "null", "ByteLevel": // offsets only
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

// addTemplate sets what a TemplateProcessing puts around a text.
func (t *Tokenizer) addTemplate(raw []byte) error {
	type special struct {
		ID     string  `json:"id"`
		IDs    []int64 `json:"ids"`
		Tokens []string
	}
	type place struct {
		ID     string `json:"id"`
		TypeID int    `json:"type_id"`
	}
	var s struct {
		Type   string `json:"type"`
		Single []struct {
			SpecialToken *place `json:"SpecialToken"`
			Sequence     *place `json:"Sequence"`
		} `json:"single"`
		Pair          json.RawMessage    `json:"pair"`
		SpecialTokens map[string]special `json:"special_tokens"`
	}
	if err := strict(raw, "post_processor", &s); err != nil {
		return err
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
		return unsupported("post_processor TemplateProcessing with the text %d times", texts)
	}
	t.prefix, t.suffix = prefix, suffix
	return nil
}
