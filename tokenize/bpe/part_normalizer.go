package bpe

import (
	"fmt"
	"strings"
)

// Limits on the parts of a file: the steps of a normalizer or decoder, the stages of a
// pre-tokenizer, and the factor by which steps can lengthen text. The text that Prepend adds to a
// section has at most maxPrepended bytes after all later steps. A decoder can lengthen the
// vocabulary by at most maxDecodedText bytes in total.
const (
	maxSteps       = 64
	maxStages      = 16
	maxGrowth      = 64
	maxPrepended   = 64
	maxDecodedText = 64 << 20
)

type replaceSpec struct {
	Type    string      `json:"type"`
	Pattern patternSpec `json:"pattern"`
	Content string      `json:"content"`
}

type patternSpec struct {
	Regex  *string `json:"Regex"`
	String *string `json:"String"`
}

// normSteps parses a normalizer: null, NFC, Prepend, Replace of a string, or a Sequence of these.
func normSteps(p part) ([]normStep, error) {
	steps, err := appendNormSteps(nil, p, 0)
	if err != nil {
		return nil, err
	}
	if len(steps) > maxSteps {
		return nil, unsupported("normalizer with %d steps (limit %d)", len(steps), maxSteps)
	}
	growth, prepended := 1, 0
	for _, s := range steps {
		switch s.kind {
		case stepReplace:
			growth = growBy(growth, s.from, s.to)
			prepended *= growBy(1, s.from, s.to)
		case stepPrepend:
			prepended += len(s.to)
		case stepNFC:
		}
		if prepended > maxPrepended {
			return nil, unsupported("normalizer that prepends more than %d bytes", maxPrepended)
		}
	}
	if growth > maxGrowth {
		return nil, unsupported("normalizer that can make text more than %d times longer", maxGrowth)
	}
	return steps, nil
}

// growBy returns the growth factor after one more Replace step, but at most maxGrowth+1.
func growBy(growth int, from, to string) int {
	if len(to) > maxGrowth*len(from) {
		return maxGrowth + 1
	}
	return min(growth*max(1, (len(to)+len(from)-1)/len(from)), maxGrowth+1)
}

func appendNormSteps(steps []normStep, p part, depth int) ([]normStep, error) {
	const what = "normalizer"
	switch p.name() {
	case "null":
		return steps, nil
	case "NFC":
		return append(steps, normStep{kind: stepNFC}), nil
	case "Prepend":
		var s struct {
			Type    string  `json:"type"`
			Prepend *string `json:"prepend"`
		}
		if err := strict(p.raw, what, &s); err != nil {
			return nil, err
		}
		if s.Prepend == nil {
			return nil, fmt.Errorf("%w: normalizer Prepend without prepend", ErrCorrupt)
		}
		if *s.Prepend == "" {
			return nil, unsupported("normalizer Prepend of an empty string") // the reference engine would panic
		}
		return append(steps, normStep{kind: stepPrepend, to: *s.Prepend}), nil
	case "Replace":
		from, to, err := readReplace(p, what)
		if err != nil {
			return nil, err
		}
		return append(steps, normStep{kind: stepReplace, from: from, to: to}), nil
	case "Sequence":
		var s struct {
			Type        string `json:"type"`
			Normalizers []part `json:"normalizers"`
		}
		if err := strict(p.raw, what, &s); err != nil {
			return nil, err
		}
		if depth > maxJSONDepth {
			return nil, unsupported("normalizer nested more than %d levels deep", maxJSONDepth)
		}
		for _, q := range s.Normalizers {
			var err error
			if steps, err = appendNormSteps(steps, q, depth+1); err != nil {
				return nil, err
			}
		}
		return steps, nil
	}
	return nil, unsupported("normalizer %s", p.name())
}

// readReplace parses a Replace, which can be a normalizer or a decoder. A regular expression is
// accepted only if it is equivalent to a plain string.
func readReplace(p part, what string) (from, to string, err error) {
	var s replaceSpec
	if err := strict(p.raw, what, &s); err != nil {
		return "", "", err
	}
	switch {
	case (s.Pattern.Regex == nil) == (s.Pattern.String == nil):
		return "", "", fmt.Errorf("%w: %s Replace needs exactly one pattern", ErrCorrupt, what)
	case s.Pattern.String != nil:
		from = *s.Pattern.String
	case strings.ContainsAny(*s.Pattern.Regex, `\.+*?()|[]{}^$#&-~`):
		return "", "", unsupported("%s Replace with the pattern %q", what, *s.Pattern.Regex)
	default:
		from = *s.Pattern.Regex
	}
	if from == "" {
		return "", "", unsupported("%s Replace of an empty string", what)
	}
	return from, s.Content, nil
}
