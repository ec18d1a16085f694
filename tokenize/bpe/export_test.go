package bpe

import "github.com/rollout-rl/rollout/tokenize/internal/textview"

// TextViews reports whether composed text is read without a copy.
const TextViews = textview.Shared

// The readers of single formats. Load chooses one of them.
var (
	LoadTekken   = loadTekken
	LoadTiktoken = loadTiktoken
)

const (
	FileTekken   = fileTekken
	FileTiktoken = fileTiktoken
)

// ForgetWords empties the word caches for this goroutine's next call.
func (t *Tokenizer) ForgetWords() {
	e, ok := t.pool.Get().(*encoder)
	if !ok {
		e = new(encoder)
	}
	clear(e.hot[:])
	clear(e.cache[:])
	t.pool.Put(e)
}

const (
	PatternCL100K = patternCL100K
	PatternLlama3 = patternLlama3
	PatternO200K  = patternO200K
	PatternKimi   = patternKimi
	PatternQwen35 = patternQwen35
	PatternGPT2   = patternGPT2
	PatternTekken = patternTekken

	PatternDeepSeek1 = patternDeepSeek1
	PatternDeepSeek2 = patternDeepSeek2
	PatternDeepSeek3 = patternDeepSeek3
)

// Pretokens returns the pre-tokens of a text without added tokens.
func (t *Tokenizer) Pretokens(s string) []string {
	pieces := []string{s}
	for i := range t.stages {
		var next []string
		for _, p := range pieces {
			next = append(next, piecesOf(t.stages[i], p)...)
		}
		pieces = next
	}
	return pieces
}

// ForgetCuts makes t merge every pre-token as a whole. t must have a vocabulary of characters.
func (t *Tokenizer) ForgetCuts() {
	t.stages[len(t.stages)-1].cut = func(s string, _ int) int { return len(s) }
}

// Splitter returns a function that splits as Split does, by a regular expression or by a string.
func Splitter(regex, text, behavior string, invert bool) (func(s string) []string, error) {
	st, err := stringStage(text, gapRule(behavior), invert)
	if regex != "" {
		st, err = regexStage(regex, gapRule(behavior), invert)
	}
	return func(s string) []string { return piecesOf(st, s) }, err
}

func DigitSplitter(individual bool) (func(s string) []string, error) {
	expr := patternDigits
	if individual {
		expr = patternDigit
	}
	return Splitter(expr, "", string(isolated), false)
}

func piecesOf(st stage, s string) (pieces []string) {
	c := cutList{st: &st, s: s}
	for i, j := c.next(); i < j; i, j = c.next() {
		pieces = append(pieces, s[i:j])
	}
	return pieces
}

// Tries returns how many tokens are tried to encode text.
func (t *Tokenizer) Tries(text string) int {
	e := t.encoder()
	before := e.merge.tries
	for len(text) > 0 {
		n := min(len(text), MaxPretoken)
		t.appendMerged(nil, text[:n], &e.merge)
		text = text[n:]
	}
	return e.merge.tries - before
}

// Scratch returns the bytes of merge memory in the pool for this goroutine's next call.
func (t *Tokenizer) Scratch() int {
	e := t.encoder()
	defer t.pool.Put(e)
	m := &e.merge
	return 4*(cap(m.ids)+cap(m.next)+cap(m.prev)) + 8*cap(m.queue)
}
