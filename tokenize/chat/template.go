package chat

import (
	"cmp"
	"slices"
	"time"
)

// A Template is a parsed chat template. It is immutable and safe for concurrent use.
type Template struct {
	name  string
	src   string
	opts  Options
	body  []stmt
	names []string // names that the template looks up
	slots int
	loads []load
}

// Options contains limits and special tokens. A limit of 0 or less means the default.
type Options struct {
	// MaxSourceBytes limits the size of the template. The default is 1 MiB.
	MaxSourceBytes int
	// MaxNesting limits the nesting of blocks and expressions in the source. The default is 200.
	MaxNesting int
	// MaxOutputBytes limits the text of one render. The default is 64 MiB.
	MaxOutputBytes int
	// MaxValueBytes limits the total size of all values that one render creates. The default is 1
	// GiB.
	MaxValueBytes int64
	// MaxSteps limits the number of expressions and statements that one render evaluates, plus the
	// elements that its filters visit. The default is 50 million, which takes a few seconds.
	MaxSteps int64
	// MaxDepth limits the depth of macro calls. The default is 200.
	MaxDepth int

	// BOSToken and EOSToken are the values of bos_token and eos_token. If a value is empty, the
	// variable is undefined.
	BOSToken, EOSToken string
	// Tokens contains further special tokens by variable name, such as unk_token and pad_token.
	Tokens map[string]string
}

func (o Options) withDefaults() Options {
	o.MaxSourceBytes = cmp.Or(max(o.MaxSourceBytes, 0), 1<<20)
	o.MaxNesting = cmp.Or(max(o.MaxNesting, 0), 200)
	o.MaxOutputBytes = cmp.Or(max(o.MaxOutputBytes, 0), 64<<20)
	o.MaxValueBytes = cmp.Or(max(o.MaxValueBytes, 0), 1<<30)
	o.MaxSteps = cmp.Or(max(o.MaxSteps, 0), 50_000_000)
	o.MaxDepth = cmp.Or(max(o.MaxDepth, 0), 200)
	return o
}

// Input contains the variables that the server passes to one render.
type Input struct {
	// Messages is the conversation: a nonempty list of dicts in the shape of the OpenAI API.
	Messages Value
	// Tools and Documents are lists of dicts. The template sees the zero Value as None.
	Tools, Documents Value
	// AddGenerationPrompt adds the text that opens the model's turn.
	AddGenerationPrompt bool
	// ContinueFinalMessage names a key in the final message, usually content. The rendered text
	// then ends with the value of the key, so that the model continues the value.
	// ContinueFinalMessage cannot be combined with AddGenerationPrompt.
	ContinueFinalMessage string
	// Transformers is the version of the transformers library whose rules apply. The default is
	// Transformers457.
	Transformers Transformers
	// Now is the time that strftime_now prints: the server's local time without a zone, like
	// Python's datetime.now(). If Now is zero, calling strftime_now is an error.
	Now time.Time
	// Formats, if not nil, collects each format that the template passes to strftime_now.
	Formats *[]string
	// Extra contains further variables, such as enable_thinking and tool_choice. It overrides the
	// fields above and all special tokens. It can be nil.
	Extra *Map
}

// Name returns the name that was passed to Parse.
func (t *Template) Name() string { return t.name }

// EOSToken returns the special token eos_token, or "" if it is not set.
func (t *Template) EOSToken() string { return t.opts.EOSToken }

// Source returns the text that was passed to Parse.
func (t *Template) Source() string { return t.src }

// ReadsClock reports whether the template mentions strftime_now, the only way to read a clock. If
// not, equal inputs always render the same text.
func (t *Template) ReadsClock() bool { return slices.Contains(t.names, clockName) }
