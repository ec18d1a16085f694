package bpe

import "slices"

type byteLevelSpec struct {
	Type           string `json:"type"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets    bool   `json:"trim_offsets"`
	UseRegex       bool   `json:"use_regex,omitempty"`
}

type splitSpec struct {
	Type     string      `json:"type"`
	Pattern  patternSpec `json:"pattern"`
	Behavior string      `json:"behavior"`
	Invert   bool        `json:"invert"`
}

type digitsSpec struct {
	Type       string `json:"type"`
	Individual bool   `json:"individual_digits"`
}

// splits parses a pre-tokenizer: any number of Split and Digits parts, and a ByteLevel as the last
// part.
func (f *jsonFile) splits(t *Tokenizer) error {
	parts, err := f.preParts()
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return unsupported("pre_tokenizer that is null or has no parts")
	}
	var stages []stage
	for i, p := range parts {
		st := stage{}
		last := i == len(parts)-1
		switch name := p.name(); {
		case name == "ByteLevel" && last:
			var regex bool
			if regex, err = readByteLevel(p); err == nil && !regex {
				continue
			}
			if err == nil {
				st, err = regexStage(patternGPT2, isolated, false)
			}
		case name != "Split" && name != "Digits" && name != "ByteLevel":
			return unsupported("pre_tokenizer %s", name)
		case last || name == "ByteLevel":
			return unsupported("pre_tokenizer %s at position %d of %d (want exactly one ByteLevel, and it must be last)", name, i+1, len(parts))
		case name == "Split":
			st, err = readSplit(p)
		default:
			st, err = readDigits(p)
		}
		if err != nil {
			return err
		}
		stages = append(stages, st)
	}
	if len(stages) == 0 {
		return unsupported("pre_tokenizer ByteLevel with use_regex false and nothing before it")
	}
	return t.setStages(stages)
}

// readByteLevel reports whether a ByteLevel splits text with its own pattern.
func readByteLevel(p part) (regex bool, err error) {
	s := byteLevelSpec{UseRegex: true}
	if err := strict(p.raw, "pre_tokenizer", &s); err != nil {
		return false, err
	}
	if s.AddPrefixSpace {
		return false, unsupported("pre_tokenizer ByteLevel with add_prefix_space")
	}
	return s.UseRegex, nil
}

func readDigits(p part) (stage, error) {
	var s digitsSpec
	if err := strict(p.raw, "pre_tokenizer", &s); err != nil {
		return stage{}, err
	}
	if s.Individual {
		return regexStage(patternDigit, isolated, false)
	}
	return regexStage(patternDigits, isolated, false)
}

func readSplit(p part) (stage, error) {
	var s splitSpec
	if err := strict(p.raw, "pre_tokenizer", &s); err != nil {
		return stage{}, err
	}
	gaps := gapRule(s.Behavior)
	if !slices.Contains([]gapRule{isolated, removed, mergedWithPrevious, mergedWithNext, contiguous}, gaps) {
		return stage{}, unsupported("pre_tokenizer Split with behavior %q", s.Behavior)
	}
	switch {
	case s.Pattern.Regex != nil && s.Pattern.String == nil:
		return regexStage(*s.Pattern.Regex, gaps, s.Invert)
	case s.Pattern.String != nil && s.Pattern.Regex == nil:
		return stringStage(*s.Pattern.String, gaps, s.Invert)
	}
	return stage{}, unsupported("pre_tokenizer Split without exactly one pattern")
}
