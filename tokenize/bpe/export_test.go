package bpe

// TextViews says whether composed text is read without a copy.
const TextViews = textViews

// ForgetWords makes the next call of this goroutine begin with empty caches. Its
// scratch memory stays.
func (t *Tokenizer) ForgetWords() {
	e, ok := t.pool.Get().(*encoder)
	if !ok {
		e = new(encoder)
	}
	clear(e.hot[:])
	clear(e.cache[:])
	t.pool.Put(e)
}

// The patterns that tests put into files of their own.
const (
	PatternCL100K = patternCL100K
	PatternO200K  = patternO200K
	PatternKimi   = patternKimi
	PatternTekken = patternTekken
)

// Pretokens returns the pre-tokens of a text without added tokens.
func (t *Tokenizer) Pretokens(s string) []string {
	pieces := []string{s}
	for i := range t.stages {
		var next []string
		for _, p := range pieces {
			c := cutList{st: &t.stages[i], s: p}
			for i, j := c.next(); i < j; i, j = c.next() {
				next = append(next, p[i:j])
			}
		}
		pieces = next
	}
	return pieces
}

// ForgetCuts makes t, which has a vocabulary of characters, merge every pre-token
// whole.
func (t *Tokenizer) ForgetCuts() {
	t.stages[len(t.stages)-1].cut = func(s string, _ int) int { return len(s) }
}
