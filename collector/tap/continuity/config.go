package continuity

import (
	"cmp"
	"errors"
	"time"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A Config configures a Table. Tokenizer and Template are required.
type Config struct {
	// Tokenizer and Template are the model's own, with which the server renders its prompts. New
	// refuses a template in whose prompts it cannot find the model's turns.
	Tokenizer *bpe.Tokenizer
	Template  *chat.Template
	// Transformers is the release whose rendering rules the server uses. Default: the first.
	Transformers chat.Transformers
	// MaxPrompt is the most tokens of a spliced prompt; longer prompts are not spliced. Set it to
	// the engine's context minus the longest output, because the server checks only its own,
	// shorter prompt. Default: no limit.
	MaxPrompt int
	// MaxBytes is the approximate memory limit of the table. Beyond it the least recently used
	// calls are dropped, and their prompts are not spliced. Default 256 MiB.
	MaxBytes int64
	// MaxAge is how long an unused call is kept. Default DefaultMaxAge.
	MaxAge time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// DefaultMaxAge is the default of Config.MaxAge.
const DefaultMaxAge = time.Hour

func (c Config) withDefaults() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, 256<<20)
	c.MaxAge = cmp.Or(c.MaxAge, DefaultMaxAge)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate returns all errors of the resolved config, joined.
func (c Config) Validate() error {
	var all []error
	check := func(ok bool, problem string) {
		if !ok {
			all = append(all, errors.New(problem))
		}
	}
	check(c.Tokenizer != nil, "tokenizer: the model's tokenizer is required, to compare texts")
	check(c.Template != nil, "template: the model's chat template is required, to find its turns in prompts")
	check(c.MaxPrompt >= 0, "max prompt: must be ≥ 0")
	check(c.MaxBytes >= 0, "max bytes: must be ≥ 0")
	check(c.MaxAge >= 0, "max age: must be ≥ 0")
	return errors.Join(all...)
}
