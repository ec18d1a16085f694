package bpe

import "sync"

// ForgetWords makes the next calls begin with empty caches.
func (t *Tokenizer) ForgetWords() {
	t.pool = sync.Pool{}
}

// The patterns that tests put into files of their own.
const (
	PatternCL100K = patternCL100K
	PatternO200K  = patternO200K
	PatternKimi   = patternKimi
)
