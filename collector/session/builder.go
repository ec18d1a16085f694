package session

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
)

// A builder is the state of one use of Build. Each of its steps has a file.
type builder struct {
	cfg    Config
	record *Record

	requests []*call // every request, in the order of Call.Number
	calls    []*call // the requests with an answer; call.index is the index
	chains   []*chain

	task     string           // the task's prompt in the form of plain, or ""
	keys     map[string]int32 // numbers of the keys of messages, of models and of sets of tools
	messages []*message       // of Record.Texts; parsed when first needed
	toolSets []*toolSet       // of Record.Texts
	prefixes map[pair]int32   // numbers of lists of messages: a shorter list, and one more message

	byAnswer map[int32][]*call // answered calls by the key, and by the full key, of their answer
	byPlace  map[pair][]*call  // the same, by their list of messages and their answer
	byLast   map[pair][]*call  // the same, by their last message and the full key of their answer
	sent     map[pair]int64    // when a message, by its key, was first sent after another message, in Unix nanoseconds
	byEnd    map[int32][]*call // answered calls by the number of their list of messages
	texts    map[string]int    // the number of answered calls by the text of their answer
	byTokens map[prefix]*call  // the last call whose prompt and output are these tokens
	rests    map[prefix]*rests // by the whole blocks of these sequences

	quotes map[int][]*quote // the answers that Record.Texts[i] contains as a part of its text
}

// A pair is the number of a list of messages, and the number of a message.
type pair struct{ list, message int32 }

// A toolSet is the names of a list of tools. Two sets with the same names have the same key.
type toolSet struct {
	key   int32 // 0: no tools
	names map[string]bool
}

var noTools = &toolSet{}

// overlaps reports whether two sets share a tool, or both are empty.
func (t *toolSet) overlaps(u *toolSet) bool {
	if t.key == u.key {
		return true
	}
	for name := range t.names {
		if u.names[name] {
			return true
		}
	}
	return false
}

// A call is a request of the session and what is known about it so far.
type call struct {
	*Call
	index        int   // in builder.calls
	model        int32 // the number of the name of the model
	began, ended int64 // in Unix nanoseconds; a call without an end ended when it began
	seq          sequence
	tools        *toolSet
	answer       *message // nil if the request failed

	lists     []int32 // lists[i] is the number of the list of the first i messages
	system    int     // the number of system messages at the beginning
	firstUser int32   // the number of the first user message, or -1
	lastReply int     // the index of the last assistant message in the request, or -1

	known     bool // the request contains a message that is the same as its answer
	knownHere bool // a request that began before the answer ended contains it after the same message

	parent   *call           // the call that this call continues, or nil
	children []*call         // the calls that continue this call
	parentAt int             // the position of the parent's answer in the request
	read     *call           // parent, if the request proves that the harness read its answer
	exact    bool            // parent is not nil, and the prompt begins with all of its tokens
	readers  []*call         // the later requests that contain the answer
	quoted   bool            // the text of a later request contains the text of this answer, and of no other
	changed  *call           // a later request with an assistant message of unknown origin in place of the answer
	repeat   *call           // the later request that repeats this request without the answer, or nil
	added    []int           // the messages of repeat after those that it repeats
	stated   bool            // the client stated that repeat is a retry of this call
	replyTo  *call           // the call whose rejected answer this request replies to, or nil
	latest   int             // the index of the last call of the conversation that begins with this call
	next     *call           // the call that continues this call in its chain, or nil
	fate     tokenize.Reason // what the harness did with the answer
	chain    *chain
	reason   tokenize.Reason
	place    int // the index in Rollout.Calls
}

// end returns the number of the whole list of messages.
func (c *call) end() int32 { return c.lists[len(c.lists)-1] }

// systemList returns the number of the list of system messages at the beginning.
func (c *call) systemList() int32 { return c.lists[c.system] }

// startsWith reports whether the request begins with all messages of d.
func (c *call) startsWith(d *call) bool {
	n := len(d.Messages)
	return n <= len(c.Messages) && c.lists[n] == d.end()
}

// before reports whether c's answer had ended when d began.
func (c *call) before(d *call) bool { return c.ended <= d.began }

// delivered reports whether the client received a complete answer.
func (c *call) delivered() bool { return answered(c.Call) && c.Delivered && !c.Cut }

// answered reports whether the call has an answer or a part of an answer. Other requests failed.
func answered(c *Call) bool {
	return len(c.Output) > 0 || c.Status == 200 && (c.Answer != nil || !c.Cut)
}

func newBuilder(r *Record, cfg Config) (*builder, error) {
	b := &builder{
		cfg: cfg, record: r,
		keys:     map[string]int32{"": 0},
		messages: make([]*message, len(r.Texts)), toolSets: make([]*toolSet, len(r.Texts)),
		prefixes: map[pair]int32{}, sent: map[pair]int64{},
		byAnswer: map[int32][]*call{}, byPlace: map[pair][]*call{}, byLast: map[pair][]*call{}, byEnd: map[int32][]*call{},
		texts: map[string]int{}, byTokens: map[prefix]*call{}, rests: map[prefix]*rests{}, quotes: map[int][]*quote{},
	}
	if r.Head.Task != nil {
		b.task = plain(r.Head.Task.Prompt)
	}
	if r.End != nil && r.End.Calls != len(r.Calls) {
		return nil, fmt.Errorf("%w: session %s has %d calls, but was sealed with %d", ErrDamaged, r.ID, len(r.Calls), r.End.Calls)
	}
	order := make([]*Call, len(r.Calls))
	for i := range r.Calls {
		order[i] = &r.Calls[i]
	}
	slices.SortStableFunc(order, func(x, y *Call) int { return cmp.Compare(x.Number, y.Number) })
	for i, c := range order {
		if i > 0 && order[i-1].Number == c.Number {
			return nil, fmt.Errorf("%w: session %s has two calls with number %d", ErrDamaged, r.ID, c.Number)
		}
		if err := b.add(c); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// add appends a request to the lists of the builder.
func (b *builder) add(raw *Call) error {
	texts := len(b.record.Texts)
	if raw.Tools < -1 || raw.Tools >= texts {
		return fmt.Errorf("%w: session %s: the tools of call %d are text %d of %d", ErrDamaged, b.record.ID, raw.Number, raw.Tools, texts)
	}
	for _, i := range raw.Messages {
		if i < 0 || i >= texts {
			return fmt.Errorf("%w: session %s: a message of call %d is text %d of %d", ErrDamaged, b.record.ID, raw.Number, i, texts)
		}
	}
	c := &call{Call: raw, tools: b.toolsOf(raw.Tools), firstUser: -1, lastReply: -1, lists: make([]int32, 1, len(raw.Messages)+1)}
	c.model = b.numberOf("model\x00" + b.modelOf(raw))
	c.began = raw.Began.UnixNano()
	c.ended = max(c.began, raw.Ended.UnixNano())
	for i, text := range raw.Messages {
		m := b.message(text)
		switch {
		case i == c.system && (m.role == "system" || m.role == "developer"):
			c.system++
		case m.role == "user" && c.firstUser < 0:
			c.firstUser = m.number
		case m.role == "assistant":
			c.lastReply = i
		}
		known := len(b.prefixes)
		c.lists = append(c.lists, b.list(c.lists[i], m.number))
		if m.role == "assistant" && len(b.prefixes) > known { // the first request with these messages
			at := pair{b.lastMessage(raw.Messages[:i]), m.number}
			if sent, ok := b.sent[at]; !ok || c.began < sent {
				b.sent[at] = c.began
			}
		}
	}
	c.seq = newSequence(raw.Prompt, raw.Output)
	b.requests = append(b.requests, c)
	if answered(raw) {
		c.index = len(b.calls)
		c.answer = b.parse(raw.Answer)
		b.calls = append(b.calls, c)
	}
	return nil
}

// modelOf returns the name of the model that answered, or "" if it is unknown.
func (b *builder) modelOf(c *Call) string { return cmp.Or(c.Model, b.record.Head.Model) }

// list returns the number of a list of messages: the list with number head, and one more message.
func (b *builder) list(head, message int32) int32 {
	n, ok := b.prefixes[pair{head, message}]
	if !ok {
		n = int32(len(b.prefixes)) + 1
		b.prefixes[pair{head, message}] = n
	}
	return n
}

func (b *builder) numberOf(key string) int32 {
	n, ok := b.keys[key]
	if !ok {
		n = int32(len(b.keys))
		b.keys[key] = n
	}
	return n
}

// message returns the message in Record.Texts[i].
func (b *builder) message(i int) *message {
	if b.messages[i] == nil {
		b.messages[i] = b.parse(b.record.Texts[i])
	}
	return b.messages[i]
}

// parse parses and numbers a message.
func (b *builder) parse(raw json.RawMessage) *message {
	m := parseMessage(raw)
	m.number, m.full = b.numberOf(m.key), b.numberOf(m.fullKey())
	m.task = b.task != "" && m.role == "user" && strings.Contains(plain(m.text), b.task)
	return &m
}

// toolsOf returns the tools in Record.Texts[i].
func (b *builder) toolsOf(i int) *toolSet {
	if i < 0 {
		return noTools
	}
	if b.toolSets[i] == nil {
		b.toolSets[i] = noTools
		if names := toolNames(b.record.Texts[i]); names != nil {
			b.toolSets[i] = &toolSet{b.numberOf("tools\x00" + strings.Join(slices.Sorted(maps.Keys(names)), "\x00")), names}
		}
	}
	return b.toolSets[i]
}
