package chat

import (
	"slices"
	"time"
)

// A Template is one parsed chat template. It does not change after Parse: any
// number of goroutines may render it at once.
type Template struct {
	name  string
	src   string
	opts  Options
	body  []stmt
	names []string // what the template asks its context for
	slots int
	loads []load
}

// Options holds the limits of a template and what it can see of the world. The
// zero value has the documented defaults.
type Options struct {
	// MaxSourceBytes is the size of the longest template; default 1 MiB.
	MaxSourceBytes int
	// MaxNesting is how deep blocks and expressions may nest in the source;
	// default 200.
	MaxNesting int
	// MaxOutputBytes is the longest text that one render may give; default 64 MiB.
	MaxOutputBytes int
	// MaxValueBytes is the sum of the sizes of all values that one render makes on
	// its way, which bounds its memory; default 1 GiB.
	MaxValueBytes int64
	// MaxSteps is the number of expressions and statements that one render may
	// evaluate, and of elements that its filters may visit; default 50 million, a
	// few seconds.
	MaxSteps int64
	// MaxDepth is how deep macros may call each other; default 200.
	MaxDepth int

	// BOSToken and EOSToken are what bos_token and eos_token are in the template.
	// An empty one is undefined there.
	BOSToken, EOSToken string
	// Tokens holds further special tokens by the name of their variable: unk_token,
	// pad_token and whatever else tokenizer_config.json names.
	Tokens map[string]string
}

func (o Options) withDefaults() Options {
	if o.MaxSourceBytes <= 0 {
		o.MaxSourceBytes = 1 << 20
	}
	if o.MaxNesting <= 0 {
		o.MaxNesting = 200
	}
	if o.MaxOutputBytes <= 0 {
		o.MaxOutputBytes = 64 << 20
	}
	if o.MaxValueBytes <= 0 {
		o.MaxValueBytes = 1 << 30
	}
	if o.MaxSteps <= 0 {
		o.MaxSteps = 50_000_000
	}
	if o.MaxDepth <= 0 {
		o.MaxDepth = 200
	}
	return o
}

// Input is what one render is made from: the variables that a server gives to
// the template.
type Input struct {
	// Messages is the conversation, a list of dicts in the shape of the OpenAI API. It
	// must not be empty.
	Messages Value
	// Tools is the list of tools, each a dict, or the zero Value, which the template
	// sees as None. So is Documents.
	Tools, Documents Value
	// AddGenerationPrompt asks for the text that opens the model's turn.
	AddGenerationPrompt bool
	// ContinueFinalMessage names the key of the final message, content as a rule, at
	// whose end the text is to stop, so that the model goes on there. It excludes
	// AddGenerationPrompt. Empty: the text is whole.
	ContinueFinalMessage string
	// Transformers is the release whose rules are followed. Default Transformers457.
	Transformers Transformers
	// Now is the time that strftime_now prints: the server's local time, a naive time like
	// Python's datetime.now(). If it is zero, a template that calls strftime_now returns an
	// error.
	Now time.Time
	// Formats, if not nil, collects each format that the template passes to strftime_now.
	Formats *[]string
	// Extra holds further variables (enable_thinking, tool_choice …), and may
	// replace any of the above and any special token. Nil is allowed.
	Extra *Map
}

// Name is the name that was given to Parse.
func (t *Template) Name() string { return t.name }

// EOSToken is the special token eos_token, or empty.
func (t *Template) EOSToken() string { return t.opts.EOSToken }

// Source is the text that was given to Parse.
func (t *Template) Source() string { return t.src }

// ReadsClock reports whether the template mentions strftime_now. No other name gives a
// template access to a clock. Without it, equal inputs always render the same text.
func (t *Template) ReadsClock() bool { return slices.Contains(t.names, clockName) }
