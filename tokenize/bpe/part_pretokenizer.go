package bpe

import (
	"slices"
)

type byteLevelSpec struct {
	Type           string `json:"type"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets    bool   `json:"trim_offsets"`
	UseRegex       bool   `json:"use_regex,omitempty"`
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
	b := byteLevelSpec{UseRegex: true}
	if err := strict(parts[len(parts)-1].raw, "pre_tokenizer", &b); err != nil {
		return err
	}
	if b.AddPrefixSpace {
		return unsupported("pre_tokenizer ByteLevel with add_prefix_space")
	}
	parts = parts[:len(parts)-1]
	if b.UseRegex {
		if len(parts) > 0 {
			return unsupported("pre_tokenizer ByteLevel with use_regex after a Split")
		}
		t.family, t.stages = FamilyGPT2, []splitter{splitGPT2}
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
		if s.Pattern.Regex == nil || s.Pattern.String != nil {
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
		t.family, t.stages = FamilyDeepSeek, []splitter{segmentDeepSeek, splitDeepSeek}
		return nil
	}
	if len(patterns) != 1 {
		return unsupported("pre_tokenizer with %d Split patterns %q", len(patterns), patterns)
	}
	// Each of these matches every character, so that there are no gaps.
	switch patterns[0] {
	case patternCL100K:
		t.family, t.stages = FamilyCL100K, []splitter{splitCL100K}
	case patternLlama3:
		t.family, t.stages = FamilyLlama3, []splitter{splitLlama3}
	case patternO200K:
		t.family, t.stages = FamilyO200K, []splitter{splitO200K}
	case patternTekken:
		t.family, t.stages = FamilyTekken, []splitter{splitTekken}
	case patternKimi:
		// The pattern alone: the cuts before it belong to tiktoken.model.
		t.family, t.stages = FamilyKimi, []splitter{splitKimi}
	default:
		return unsupported("pre_tokenizer Split pattern %q", patterns[0])
	}
	return nil
}
