package bpe

import (
	"slices"
	"sync"

	"github.com/rollout-rl/rollout/tokenize/bpe/internal/pattern"
)

// The patterns of the families, exactly as in tokenizer.json. The text of a pattern identifies the
// family.
const (
	patternCL100K = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternOpenAI = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternO200K  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternKimi   = `[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	// ByteLevel's own pattern.
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

	// DeepSeek applies three patterns in sequence, each to the pieces that the previous pattern
	// produced. The first two have no character in common, so one combined pattern can match both.
	patternDeepSeek1  = `\p{N}{1,3}`
	patternDeepSeek2  = "[一-龥\u3040-ゟ゠-ヿ]+"
	patternDeepSeek12 = patternDeepSeek1 + `|` + patternDeepSeek2
	patternDeepSeek3  = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"

	// The pre-tokenizer Digits uses Rust's char::is_numeric with Unicode 17.0. That function
	// accepts 13 more characters than \p{N} in Unicode 16.0.
	patternDigit  = `[\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}]`
	patternDigits = patternDigit + `+`
)

// families lists the known sequences of patterns, all with the gap rule isolated. If same is not
// nil, its patterns are used, because they produce the same pieces faster.
var families = [...]struct {
	family         Family
	patterns, same []string
}{
	{FamilyCL100K, []string{patternCL100K}, nil},
	{FamilyCL100K, []string{patternOpenAI}, nil},
	{FamilyQwen35, []string{patternQwen35}, nil},
	{FamilyLlama3, []string{patternLlama3}, nil},
	{FamilyO200K, []string{patternO200K}, nil},
	{FamilyTekken, []string{patternTekken}, nil},
	{FamilyKimi, []string{patternKimi}, nil},
	{FamilyGPT2, []string{patternGPT2}, nil},
	{FamilyCommandR, []string{patternDigit, patternGPT2}, nil},
	{FamilyDeepSeek, []string{patternDeepSeek1, patternDeepSeek2, patternDeepSeek3}, []string{patternDeepSeek12, patternDeepSeek3}},
}

// setStages sets t.stages and t.family. The patterns of the stages identify the family.
func (t *Tokenizer) setStages(stages []stage) error {
	t.family, t.stages = FamilyOther, stages
	for _, f := range families {
		if !slices.EqualFunc(stages, f.patterns, func(s stage, expr string) bool { return s.expr == expr && s.gaps == isolated }) {
			continue
		}
		t.family = f.family
		if f.same == nil {
			return nil
		}
		t.stages = nil
		for _, expr := range f.same {
			st, err := regexStage(expr, isolated, false)
			if err != nil {
				return err
			}
			t.stages = append(t.stages, st)
		}
	}
	return nil
}

// known caches the compiled patterns of the families for all tokenizers. A compiled pattern takes
// about 45 KiB.
var known sync.Map // maps the text of a pattern to a *pattern.Pattern

func compile(expr string) (*pattern.Pattern, error) {
	v, _ := known.Load(expr)
	if p, ok := v.(*pattern.Pattern); ok {
		return p, nil
	}
	p, err := pattern.Compile(expr)
	if err != nil {
		return nil, unsupported("pre_tokenizer Split pattern %.1000q: %v", expr, err)
	}
	for _, f := range families {
		if slices.Contains(f.patterns, expr) || slices.Contains(f.same, expr) {
			known.Store(expr, p)
		}
	}
	return p, nil
}
