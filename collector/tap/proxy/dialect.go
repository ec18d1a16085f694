package proxy

import (
	"errors"
	"math"
	"slices"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// A dialect parses one kind of API. It has no state.
type dialect interface {
	// name is the dialect's name in calls and metrics.
	name() string
	// serves reports whether a POST to path is a request for a generation.
	serves(path string) bool
	// request parses a body, which is q.body, from s.
	request(s *tokenize.Scanner, q *request) error
	// answer parses one document from s: the whole answer, or one event if a.streamed.
	answer(s *tokenize.Scanner, a *answer) error
	// keys returns the member names of the settings in a body for path; "" for unsupported ones.
	keys(path string) *names
	// asks returns the members that make the engine return ids and log-probabilities. They are
	// added only if the body does not have them.
	asks(q *request) []ask
}

// An ask is a member of a body.
type ask struct{ key, value string }

var dialects = []dialect{sglang{}, openai{}}

// dialectOf returns the dialect of a request, or nil if it is not a generation.
func dialectOf(method, path string) dialect {
	if method != "POST" {
		return nil
	}
	for _, d := range dialects {
		if d.serves(path) {
			return d
		}
	}
	return nil
}

// A request has the parts that a dialect finds in a body. Positions are offsets in body.
type request struct {
	path string
	body []byte

	// root is the body's object.
	root object
	// prompt is the ids of the only prompt; promptAt is the position of their list. prompt is nil
	// if the body has no such list. It uses the memory of room if that suffices.
	prompt   []int32
	room     []int32
	promptAt span
	// foreign means that the engine's prompt has other parts, such as an image or a session's
	// history.
	foreign bool
	// several means that the body asks for several outputs.
	several  bool
	streamed bool
	// grows is the part of a body without ids that grows from call to call of a chain.
	grows []byte
	// sampling has the objects with sampling parameters. If it is empty, a new object replaces the
	// `null` at samplingAt, or is added to root.
	sampling   []*object
	samplingAt span
}

// A span is the range [from, to) of a body. The zero span means none.
type span struct{ from, to int }

// An object has the positions of the members of a JSON object that a dialect wants.
type object struct {
	open    int // offset after the opening brace
	empty   bool
	members []member
}

type member struct {
	key   string
	value span
}

// errTwice means that a wanted member appears twice. Engines differ in which one counts.
var errTwice = errors.New("proxy: duplicate member")

// A field is a member that a dialect reads from an answer.
type field struct {
	name string
	// first is the first byte of the values that parse reads; others are skipped.
	first byte
	parse func() error
}

// Values of field.first for more than one type.
const (
	anyValue byte = 0
	notNull  byte = 'n'
)

// parseFields parses an object and skips its other members.
func parseFields(s *tokenize.Scanner, fields ...field) error {
	seen := 0
	return s.Object(func(key []byte) error {
		for i := range fields {
			f := &fields[i]
			if f.name != string(key) {
				continue
			}
			if seen&(1<<i) != 0 {
				return errTwice
			}
			seen |= 1 << i
			if f.first != anyValue && (s.Next() == f.first) == (f.first == notNull) {
				return s.Skip()
			}
			return f.parse()
		}
		return s.Skip()
	})
}

// object parses an object and records the members that want accepts. read parses their values; if
// read is nil, they are skipped. Other members are skipped.
func (q *request) object(s *tokenize.Scanner, want func(key []byte) bool, read func(key string) error) (o object, err error) {
	s.Next()
	o.open = int(s.Offset()) + 1
	o.empty = true
	err = s.Object(func(key []byte) error {
		o.empty = false
		if !want(key) {
			return s.Skip()
		}
		name := string(key)
		if o.find(name) >= 0 {
			return errTwice
		}
		s.Next()
		at := int(s.Offset())
		var err error
		if read == nil {
			err = s.Skip()
		} else {
			err = read(name)
		}
		o.members = append(o.members, member{name, span{at, int(s.Offset())}})
		return err
	})
	return o, err
}

// find returns the index of a member, or -1.
func (o *object) find(key string) int {
	return slices.IndexFunc(o.members, func(m member) bool { return m.key == key })
}

func (o *object) value(body []byte, key string) []byte {
	if i := o.find(key); i >= 0 {
		return body[o.members[i].value.from:o.members[i].value.to]
	}
	return nil
}

// ids parses a list of ids into q.prompt. A list of lists sets q.several.
func (q *request) ids(s *tokenize.Scanner) (err error) {
	if s.Next() != '[' {
		return s.Skip()
	}
	at := int(s.Offset())
	for i := at + 1; i < len(q.body); i++ {
		switch q.body[i] {
		case ' ', '\t', '\r', '\n':
			continue
		case '[':
			q.several = true
			return s.Skip()
		case '"':
			return s.Skip() // texts
		}
		break
	}
	q.prompt, err = s.IDs(q.room[:0])
	if len(q.prompt) == 0 {
		q.prompt = nil
	}
	q.promptAt = span{at, int(s.Offset())}
	return err
}

func (q *request) truth(s *tokenize.Scanner) (bool, error) {
	is := s.Next() == 't'
	return is, s.Skip()
}

// An answer collects the values that a dialect finds in the documents of an answer.
type answer struct {
	streamed bool
	tray     *tray // of the current document or event

	// The engine's last values, or the zero values of newCall.
	prompt                             tap.IDs
	finish                             string
	matched                            int32
	version                            string
	promptTokens, outputTokens, cached int32

	// output is the sampled ids. logprobs belong to logIDs, or one by one to output if bare. uneven
	// means that some part of the answer has a different number of each.
	output       []int32
	logprobs     []float32
	logIDs       []int32
	bare, uneven bool

	// spans is the engine's last weight_versions: nil if there are none, empty if they cannot be
	// parsed. word and list belong to the current document.
	spans, list []tokenize.VersionSpan
	word        string
	// mixed means that two documents name different weight versions. torn means that one document
	// names several.
	mixed, torn bool

	// several means more than one output. failed means that the engine reports an error.
	several, failed bool

	parts parts // of a stream
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

// name records a weight version. Two different versions belong to different tokens.
func (a *answer) name(v string) {
	if v == "" {
		return
	}
	a.torn = a.torn || a.word != "" && a.word != v
	a.mixed = a.mixed || a.version != "" && a.version != v
	a.word, a.version = v, v
}

// maxSpans bounds the version spans of an output.
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

// part records the version spans. Two different lists in a document make the answer torn.
func (a *answer) part(list []tokenize.VersionSpan) {
	a.torn = a.torn || a.list != nil && !slices.Equal(a.list, list)
	a.list, a.spans = list, list
}

// merge overrides a with the values of b, a more reliable part of the answer.
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
	for _, n := range []struct{ to, from *int32 }{{&a.promptTokens, &b.promptTokens}, {&a.outputTokens, &b.outputTokens}, {&a.cached, &b.cached}} {
		if *n.from >= 0 {
			*n.to = *n.from
		}
	}
}

// unread returns why an answer has no output, or "".
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

func (a *answer) prompted(s *tokenize.Scanner) error {
	d := newDesk()
	defer d.free()
	ids, err := s.IDs(d.ids[:0])
	d.ids, a.prompt = ids, tap.PackIDs(ids)
	return err
}

// fill copies the answer into c. It reports whether the engine's token count agrees with the
// prompt. A prompt from the answer is stored in room. Other slices belong to the tray.
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
	}
	if c.Prompt != nil && a.promptTokens >= 0 && int(a.promptTokens) != len(c.Prompt) {
		c.Prompt, c.Asked = nil, nil
		return false
	}
	return true
}

// aligned returns one log-probability for each output id. The values are NaN if the
// log-probabilities belong to other ids, or have no ids and another count.
func (a *answer) aligned() []float32 {
	known := min(len(a.output), len(a.logprobs))
	switch {
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

// count parses a number of tokens. It skips any other value and leaves *dst unchanged.
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
			return nil // not a count: leave it unknown
		}
		n = n*10 + int32(c-'0')
	}
	*dst = n
	return nil
}

// maxWord bounds the engine's words that are kept: versions, finish reasons.
const maxWord = 256

// word parses a string or a number as text. It skips all else, and texts beyond maxWord.
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

// id parses a token id. It skips any other value and returns -1.
func id(s *tokenize.Scanner) (int32, error) {
	n := int32(-1)
	if c := s.Next(); c-'0' > 9 {
		return n, s.Skip()
	}
	err := count(s, &n)
	return n, err
}
