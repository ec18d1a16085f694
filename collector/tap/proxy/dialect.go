package proxy

import (
	"errors"
	"math"
	"slices"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// A dialect reads one kind of API. It has no state.
type dialect interface {
	// name is the word for it in calls and metrics.
	name() string
	// serves reports whether a POST to path is a request for a generation.
	serves(path string) bool
	// request reads a body, which is all of q.body, from s.
	request(s *tokenize.Scanner, q *request) error
	// answer reads a document from s: the whole answer, or one event of it if a.streamed.
	answer(s *tokenize.Scanner, a *answer) error
	// keys returns the name of each setting in a body for path; empty if it has none.
	keys(path string) *names
	// asks are the members that make the engine answer with ids and log-probabilities, for a
	// body that has none of that name.
	asks(q *request) []ask
}

// An ask is a member of a body.
type ask struct{ key, value string }

// The dialects that the tap knows.
var dialects = []dialect{sglang{}, openai{}}

// dialectOf returns the dialect of a request, or nil if it is not for a generation.
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

// A request is what a dialect finds in a body. Positions are offsets in body.
type request struct {
	path string
	body []byte

	// root is the body's object.
	root object
	// prompt are the ids of the only prompt, and promptAt is where their list stands. It is
	// nil if the body has no such list. Its memory is that of room, if that is enough.
	prompt   []int32
	room     []int32
	promptAt span
	// foreign means that the engine's prompt has other parts than prompt: an image, the
	// earlier requests of a session.
	foreign bool
	// several means that the body asks for several outputs.
	several  bool
	streamed bool
	// grows is the text of the body that grows from call to call of a chain, if there are no
	// ids. It is a part of body.
	grows []byte
	// sampling are the objects that say how to sample. If there is none, and none is in the
	// body, samplingAt is where `null` stands for one; and else one is added to root.
	sampling   []*object
	samplingAt span
}

// A span is [from, to) of a body. The zero span stands for none.
type span struct{ from, to int }

// An object is where the members of a JSON object stand, as far as a dialect wants them.
type object struct {
	open    int // behind the opening brace
	empty   bool
	members []member
}

type member struct {
	key   string
	value span
}

// errTwice means that a member that is read appears twice. Which of them counts is the
// engine's to say, so nobody else does.
var errTwice = errors.New("proxy: a member appears twice")

// object reads an object and notes the members that want knows. read reads their values; nil
// skips them. Other members are skipped.
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
		if o.has(name) {
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

func (o *object) has(key string) bool {
	for i := range o.members {
		if o.members[i].key == key {
			return true
		}
	}
	return false
}

// value returns the text of a member, or nil.
func (o *object) value(body []byte, key string) []byte {
	for i := range o.members {
		if m := &o.members[i]; m.key == key {
			return body[m.value.from:m.value.to]
		}
	}
	return nil
}

// ids reads a list of ids into q.prompt, or notes that it is a list of lists.
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

// truth reads true, false or null.
func (q *request) truth(s *tokenize.Scanner) (bool, error) {
	is := s.Next() == 't'
	return is, s.Skip()
}

// An answer collects what a dialect finds in the documents of an answer.
type answer struct {
	streamed bool
	tray     *tray // of the document, or of the event that is read

	// What the engine said last, or what the zero call has if it said nothing.
	prompt                             tap.IDs
	finish                             string
	matched                            int32
	version                            string
	promptTokens, outputTokens, cached int32

	// output are the sampled ids. logprobs belong to logIDs, or one by one to output if bare.
	// uneven means that some part of the answer has not one for each id.
	output       []int32
	logprobs     []float32
	logIDs       []int32
	bare, uneven bool

	// spans are the last weight_versions of the engine: nil if there are none, and empty if
	// they cannot be read. word and list belong to the current document.
	spans, list []tokenize.VersionSpan
	word        string
	// mixed means that two documents name two versions of the weights. torn means that one
	// document names two.
	mixed, torn bool

	// several means that there is more than one output, failed that the engine reports an
	// error.
	several, failed bool

	parts parts // of a stream whose events may repeat what was said
}

// newAnswer returns an answer in which nothing was said.
func newAnswer(streamed bool) *answer {
	return &answer{streamed: streamed, matched: -1, promptTokens: -1, outputTokens: -1, cached: -1}
}

// begin begins a document.
func (a *answer) begin() { a.word, a.list = "", nil }

// versioned reads the version of the weights.
func (a *answer) versioned(s *tokenize.Scanner) error {
	v, err := word(s)
	a.name(v)
	return err
}

// name records a version of the weights. Two different versions belong to different tokens.
func (a *answer) name(v string) {
	if v == "" {
		return
	}
	a.torn = a.torn || a.word != "" && a.word != v
	a.mixed = a.mixed || a.version != "" && a.version != v
	a.word, a.version = v, v
}

// maxSpans bounds the spans of an output that are kept.
const maxSpans = 1024

// spanned reads the spans of the output and their versions of the weights.
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

// part records the spans of the output. Two different lists prove nothing.
func (a *answer) part(list []tokenize.VersionSpan) {
	a.torn = a.torn || a.list != nil && !slices.Equal(a.list, list)
	a.list, a.spans = list, list
}

// take takes over what another part of the answer says, which knows better.
func (a *answer) take(b *answer) {
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

// unread says why an answer gives no output, or is empty.
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

// sampled reads a list of ids, which lies on the tray.
func (a *answer) sampled(s *tokenize.Scanner) ([]int32, error) {
	list, err := s.IDs(a.tray.output[:0])
	a.tray.output = list[:0]
	return list, err
}

// prompted reads the ids of the engine's prompt.
func (a *answer) prompted(s *tokenize.Scanner) error {
	d := newDesk()
	defer d.free()
	ids, err := s.IDs(d.ids[:0])
	d.ids, a.prompt = ids, tap.PackIDs(ids)
	return err
}

// fill gives c what the answer says, and reports whether the prompt that the proxy sent is the
// one that the engine counted. A prompt that the answer has is put in room. The rest is that
// of the answer's tray.
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

// aligned returns one log-probability for each id of the output. It gives none if those of the
// answer belong to other ids, or if they have no ids and another number.
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

// count reads a number of tokens. It skips any other value, and the number stays unknown.
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
			return nil // not a count: nothing is claimed
		}
		n = n*10 + int32(c-'0')
	}
	*dst = n
	return nil
}

// maxWord bounds the words of an engine that are kept: versions, ends.
const maxWord = 256

// word reads a string or a number as its text. It skips any other value, or a text that is
// longer than any word, and returns "".
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

// id reads a token id. Any other value is skipped and gives -1.
func id(s *tokenize.Scanner) (int32, error) {
	n := int32(-1)
	if c := s.Next(); c-'0' > 9 {
		return n, s.Skip()
	}
	err := count(s, &n)
	return n, err
}
