package continuity

import (
	"errors"
	"time"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A Config says whose tokens are compared and how much is kept. Tokenizer and Template are
// required; the other fields have the defaults that they name.
type Config struct {
	// Tokenizer and Template are the model's own, the ones with which the server makes
	// its prompts. New refuses a template by whose prints it cannot find the model's turns.
	Tokenizer *bpe.Tokenizer
	Template  *chat.Template
	// Transformers is the release by whose rules the server renders. Default: the first.
	Transformers chat.Transformers
	// MaxPrompt is the greatest number of tokens that a spliced prompt may have; a longer
	// one is not spliced. Set it to what the engine takes, less the longest output: the
	// server reckons with its own, shorter prompt. Default: no bound.
	MaxPrompt int
	// MaxBytes bounds the memory of the table, roughly. Where it is full the calls that
	// were not used for longest go, and their prompts are not spliced. Default 256 MiB.
	MaxBytes int64
	// MaxAge is how long a call is kept after it was last used. Default DefaultMaxAge.
	MaxAge time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// DefaultMaxAge is how long a call is kept after it was last used, unless MaxAge says other.
const DefaultMaxAge = time.Hour

func (c Config) withDefaults() Config {
	if c.MaxBytes == 0 {
		c.MaxBytes = 256 << 20
	}
	if c.MaxAge == 0 {
		c.MaxAge = DefaultMaxAge
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate returns every complaint about the resolved configuration.
func (c Config) Validate() error {
	var all []error
	if c.Tokenizer == nil {
		all = append(all, errors.New("tokenizer: required: continuity compares texts, and needs the model's own"))
	}
	if c.Template == nil {
		all = append(all, errors.New("template: required: continuity proves at the start how the template prints the model's turns"))
	}
	if c.MaxPrompt < 0 {
		all = append(all, errors.New("max prompt: must be 0 or more tokens"))
	}
	if c.MaxBytes < 0 {
		all = append(all, errors.New("max bytes: must be 0 or more"))
	}
	if c.MaxAge < 0 {
		all = append(all, errors.New("max age: must be 0 or more"))
	}
	return errors.Join(all...)
}
