package proxy

import (
	"errors"
	"math"
	"slices"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// An answer collects the values that a dialect finds in the JSON documents of an answer.
type answer struct {
	streamed bool
	tray     *tray // the memory for the current document or event

	// These are the last values from the engine. newAnswer sets their initial values.
	prompt                             tap.IDs
	plain                              []int32 // the prompt, instead of prompt, if the answer is not a stream
	finish                             string
	matched                            int32
	stopText                           string // the stop string that ended the output, or ""
	version                            string
	promptTokens, outputTokens, cached int32

	// output contains the sampled ids. The values in logprobs belong to the ids in logIDs or, if
	// bare is true, to the ids in output. uneven is true if any document has different numbers of
	// ids and log-probabilities.
	output       []int32
	logprobs     []float32
	logIDs       []int32
	bare, uneven bool
	// atOnce is true if a document contained all ids at once, apart from the log-probabilities.
	atOnce bool

	// spans is the engine's latest weight_versions. It is nil if the engine sent none, and empty if
	// the value cannot be parsed. word and list are the version and the version spans in the
	// current document.
	spans, list []tokenize.VersionSpan
	word        string
	// mixed is true if two documents name different weight versions. torn is true if a single
	// document names several weight versions.
	mixed, torn bool

	// inside selects the values from inside the call that are parsed. misshapen is true if the routed
	// experts do not have the configured shape. The masks are nil if the engine returned none.
	inside            tokenize.Inside
	experts           tokenize.Experts
	misshapen         bool
	mask, maskLengths []int32

	// several is true if there is more than one output. failed is true if the engine reports an
	// error.
	several, failed bool

	parts parts // the joined events of a stream
}

func newAnswer(streamed bool) *answer {
	return &answer{streamed: streamed, matched: -1, promptTokens: -1, outputTokens: -1, cached: -1}
}

func (a *answer) begin() { a.word, a.list = "", nil }

func (a *answer) versioned(s *tokenize.Scanner) error {
	v, err := word(s)
	a.name(v)
	return err
}

// name records a weight version. It sets torn or mixed if the answer has already named a different
// version.
func (a *answer) name(v string) {
	if v == "" {
		return
	}
	a.torn = a.torn || a.word != "" && a.word != v
	a.mixed = a.mixed || a.version != "" && a.version != v
	a.word, a.version = v, v
}

// maxSpans is the maximum number of version spans in an answer. A longer list is treated as
// invalid.
const maxSpans = 1024

func (a *answer) spanned(s *tokenize.Scanner) error {
	switch s.Next() {
	case 'n':
		return s.Skip()
	case '[':
	default:
		a.part([]tokenize.VersionSpan{})
		return s.Skip()
	}
	list, readable := []tokenize.VersionSpan{}, true
	err := s.Array(func(int) error {
		if readable = readable && s.Next() == '{' && len(list) < maxSpans; !readable {
			return s.Skip()
		}
		v := tokenize.VersionSpan{Start: -1, End: -1}
		err := s.Object(func(key []byte) (err error) {
			switch string(key) {
			case "version":
				v.Version, err = word(s)
				return err
			case "start":
				v.Start = -1
				return count(s, &v.Start)
			case "end":
				v.End = -1
				return count(s, &v.End)
			}
			return s.Skip()
		})
		list = append(list, v)
		return err
	})
	if !readable {
		list = list[:0]
	}
	a.part(list)
	return err
}

// part records the version spans. If a document contains two different lists, part sets torn.
func (a *answer) part(list []tokenize.VersionSpan) {
	a.torn = a.torn || a.list != nil && !slices.Equal(a.list, list)
	a.list, a.spans = list, list
}

// merge overwrites values in a with the known values in b. b comes from a more reliable part of the
// answer.
func (a *answer) merge(b *answer) {
	if b.finish != "" {
		a.finish = b.finish
	}
	if b.matched >= 0 {
		a.matched = b.matched
	}
	a.name(b.word)
	if b.list != nil {
		a.part(b.list)
	}
	a.torn = a.torn || b.torn
	if b.experts.IDs != nil {
		a.experts, a.misshapen = b.experts, b.misshapen
	}
	if b.maskLengths != nil {
		a.mask, a.maskLengths = b.mask, b.maskLengths
	}
	for _, n := range []struct{ to, from *int32 }{{&a.promptTokens, &b.promptTokens}, {&a.outputTokens, &b.outputTokens}, {&a.cached, &b.cached}} {
		if *n.from >= 0 {
			*n.to = *n.from
		}
	}
}

// unread returns the reason why the output is unknown, or "".
func (a *answer) unread() string {
	switch {
	case a.failed:
		return "error"
	case a.several:
		return "several"
	case a.streamed && a.finish == "":
		return "unfinished"
	case a.output == nil:
		return "no_ids"
	}
	return ""
}

func (a *answer) errored(s *tokenize.Scanner) error {
	a.failed = a.failed || s.Next() != 'n'
	return s.Skip()
}

func (a *answer) sampled(s *tokenize.Scanner) ([]int32, error) {
	list, err := s.IDs(a.tray.output[:0])
	a.tray.output = list[:0]
	return list, err
}

// prompted parses the ids of the prompt. They are packed for as long as a stream lasts.
func (a *answer) prompted(s *tokenize.Scanner) (err error) {
	if !a.streamed {
		a.plain, err = s.IDs(a.tray.prompt[:0])
		a.tray.prompt = a.plain[:0]
		return err
	}
	d := newDesk()
	defer d.free()
	ids, err := s.IDs(d.ids[:0])
	d.ids, a.prompt = ids, tap.PackIDs(ids)
	return err
}

// fill copies the answer into c. samePrompt is false if the length of the prompt differs from the
// engine's token count. A prompt from a stream is stored in the memory of room. The other slices in c
// share the memory of the tray.
func (a *answer) fill(c *tap.Call, room []int32) (samePrompt bool) {
	c.Finish, c.Matched = a.finish, a.matched
	switch {
	case a.torn, a.mixed && a.spans == nil:
		c.Versions = []tokenize.VersionSpan{}
	default:
		c.Version, c.Versions = a.version, a.spans
	}
	c.PromptTokens, c.OutputTokens, c.Cached = a.promptTokens, a.outputTokens, a.cached
	if a.unread() == "" {
		c.Output, c.Logprobs = a.output, a.aligned()
	}
	if n := a.prompt.Len(); n > 0 {
		c.Prompt = a.prompt.AppendTo(slices.Grow(room[:0], n), n)
	} else if len(a.plain) > 0 {
		c.Prompt = a.plain
	}
	if c.Prompt != nil && a.promptTokens >= 0 && int(a.promptTokens) != len(c.Prompt) {
		c.Prompt, c.Asked = nil, nil
		return false
	}
	return true
}

// aligned returns one log-probability for each output id. Missing values are NaN. If uneven is set,
// or if the log-probabilities belong to other ids, all values are NaN.
func (a *answer) aligned() []float32 {
	known := min(len(a.output), len(a.logprobs))
	switch {
	case a.atOnce && a.bare:
		if len(a.output) != len(a.logprobs) {
			known = 0
		}
	case a.uneven:
		known = 0
	case !a.bare:
		if !slices.Equal(a.logIDs[:known], a.output[:known]) {
			known = 0
		}
	}
	out := a.logprobs[:known:known]
	if out == nil {
		out = []float32{}
	}
	for range a.output[known:] {
		out = append(out, float32(math.NaN()))
	}
	return out
}

// count parses a token count and stores it in *dst. If the value is not a token count, count skips
// the value and leaves *dst unchanged.
func count(s *tokenize.Scanner, dst *int32) error {
	if c := s.Next(); c != '-' && c-'0' > 9 {
		return s.Skip()
	}
	text, err := s.Number()
	if err != nil {
		return err
	}
	n := int32(0)
	for _, c := range text {
		if c-'0' > 9 || n > (math.MaxInt32-9)/10 {
			return nil // not a count, so it remains unknown
		}
		n = n*10 + int32(c-'0')
	}
	*dst = n
	return nil
}

// maxWord limits the length of a version or finish reason. Longer values are ignored.
const maxWord = 256

// word parses a string or a number as text. It returns "" for any other value and for a string
// longer than maxWord.
func word(s *tokenize.Scanner) (string, error) {
	switch c := s.Next(); {
	case c == '"':
		text, err := s.Text(maxWord)
		if errors.Is(err, tokenize.ErrTooLarge) {
			err = nil
		}
		return text, err
	case c == '-' || c-'0' <= 9:
		text, err := s.Number()
		return tokenize.VersionWord(string(text)), err
	}
	return "", s.Skip()
}

// stopped parses the token id or the stop string that ended the output.
func (a *answer) stopped(s *tokenize.Scanner) (err error) {
	if s.Next() == '"' {
		a.matched = -1
		a.stopText, err = word(s)
		return err
	}
	a.matched, err = id(s)
	return err
}

// id parses a token id. If the value is not an id, id skips the value and returns -1.
func id(s *tokenize.Scanner) (int32, error) {
	n := int32(-1)
	err := count(s, &n)
	return n, err
}
