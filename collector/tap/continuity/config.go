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
	// Tokenizer and Template belong to the model. The server's prompts must be rendered with this
	// template and encoded with this tokenizer. New refuses a template if it cannot find the model's
	// turns in the prompts.
	Tokenizer *bpe.Tokenizer
	Template  *chat.Template
	// Transformers is the release of the transformers library whose rendering rules apply. Default:
	// the first release in package chat.
	Transformers chat.Transformers
	// MaxPrompt is the maximum length of a spliced prompt, in tokens. If a spliced prompt would be
	// longer, the prompt is sent unchanged. Set MaxPrompt to the engine's context length minus the
	// maximum output length, because the server checks only the length of its own, shorter prompt.
	// Default: no limit.
	MaxPrompt int
	// MaxBytes is the approximate memory limit of the table. If the table needs more, it drops the
	// least recently used calls, and prompts that continue the dropped calls are not spliced.
	// Default 256 MiB.
	MaxBytes int64
	// MaxAge is the time for which a call is kept after its last use. Default DefaultMaxAge.
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

// Validate returns all errors in the config, joined into one error.
func (c Config) Validate() error {
	var all []error
	check := func(ok bool, problem string) {
		if !ok {
			all = append(all, errors.New(problem))
		}
	}
	check(c.Tokenizer != nil, "tokenizer: the model's tokenizer is required to compare text")
	check(c.Template != nil, "template: the model's chat template is required to find the turns in a prompt")
	check(c.MaxPrompt >= 0, "max prompt: must be ≥ 0")
	check(c.MaxBytes >= 0, "max bytes: must be ≥ 0")
	check(c.MaxAge >= 0, "max age: must be ≥ 0")
	return errors.Join(all...)
}
