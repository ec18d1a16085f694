package session

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A builder is the state of one use of Build. The files parent.go, fate.go, chain.go, kind.go and
// rollout.go contain its steps.
type builder struct {
	cfg    Config
	record *Record

	requests []*call // every request, in the order of Call.Number
	calls    []*call // the requests with an answer; call.at is the index
	chains   []*chain

	task     string            // the task's prompt in the form of plain, or ""
	about    map[int]bool      // whether Record.Texts[i] is a user message that contains it
	keys     map[string]int32  // numbers of messages and lists of tools
	messages []message         // of Record.Texts; parsed when first needed
	parsed   []bool            // of messages
	number   []int32           // the number of messages[i].key
	lists    []*toolList       // of Record.Texts
	prefixes map[prefix]int32  // numbers of beginnings of message lists
	byAnswer map[int32][]*call // answered calls by the number of their answer
	byEnd    map[int32][]*call // all requests by the number of their whole message list
	byBlocks map[blocks][]*call
}

// A prefix is a list of messages: the list with number head, and one more message.
type prefix struct{ head, message int32 }

// blocks identifies the whole blocks of a sequence.
type blocks struct {
	n   int
	sum uint64
}

// A toolList is a list of tools. Two lists with the same names have the same key.
type toolList struct {
	key   int32 // 0: no tools
	names map[string]bool
}

var noTools = &toolList{}

// kin reports whether two lists can belong to one conversation: they share a tool, or both are
// empty.
func (t *toolList) kin(u *toolList) bool {
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
	at     int
	seq    sequence
	tools  *toolList
	answer message
	said   int32 // the number of answer.key

	// lists[i] is the number of the list of the first i messages.
	lists     []int32
	system    int   // the number of system messages at the beginning
	firstUser int32 // the number of the first user message, or -1
	lastReply int   // the index of the last assistant message in the request, or -1

	parent   *call   // the call that this call continues, or nil
	children []*call // the calls that continue this call
	parentAt int     // the position of the parent's answer in the request
	exact    bool    // parent is not nil, and the prompt begins with all of its tokens
	readers  []*call // children, and later requests that contain the answer
	repeat   *call   // the later request that repeats this request, or nil
	proved   bool    // the client stated that repeat is a retry of this call
	replyTo  *call   // the call whose rejected answer this request replies to, or nil
	until    int     // the index of the last call of the conversation that begins with this call
	fate     fate
	chain    *chain
	reason   tokenize.Reason
	place    int // the index in Rollout.Calls
}

// end returns the number of the whole list of messages.
func (c *call) end() int32 { return c.lists[len(c.lists)-1] }

// systemList returns the number of the list of system messages at the beginning.
func (c *call) systemList() int32 { return c.lists[c.system] }

// before reports whether c's answer had ended when d began.
func (c *call) before(d *call) bool { return !ended(c.Call).After(d.Began) }

// ended returns the time at which the call ended. A call without an end ended when it began.
func ended(c *Call) time.Time {
	if c.Ended.Before(c.Began) {
		return c.Began
	}
	return c.Ended
}

// answered reports whether the call has an answer or a part of an answer. Other requests failed.
func answered(c *Call) bool {
	return len(c.Output) > 0 || c.Status == 200 && (c.Answer != nil || !c.Cut)
}

func newBuilder(r *Record, cfg Config) (*builder, error) {
	b := &builder{
		cfg: cfg, record: r,
		about:    map[int]bool{},
		keys:     map[string]int32{"": 0},
		messages: make([]message, len(r.Texts)), parsed: make([]bool, len(r.Texts)), number: make([]int32, len(r.Texts)),
		lists:    make([]*toolList, len(r.Texts)),
		prefixes: map[prefix]int32{}, byAnswer: map[int32][]*call{}, byEnd: map[int32][]*call{}, byBlocks: map[blocks][]*call{},
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
	for i, text := range raw.Messages {
		m := b.message(text)
		switch {
		case i == c.system && (m.role == "system" || m.role == "developer"):
			c.system++
		case m.role == "user" && c.firstUser < 0:
			c.firstUser = b.number[text]
		case m.role == "assistant":
			c.lastReply = i
		}
		next := prefix{c.lists[i], b.number[text]}
		n, ok := b.prefixes[next]
		if !ok {
			n = int32(len(b.prefixes)) + 1
			b.prefixes[next] = n
		}
		c.lists = append(c.lists, n)
	}
	c.seq = newSequence(raw.Prompt, raw.Output)
	b.requests = append(b.requests, c)
	if answered(raw) {
		c.at = len(b.calls)
		c.answer = parseMessage(raw.Answer)
		c.said = b.numberOf(c.answer.key)
		b.calls = append(b.calls, c)
	}
	return nil
}

func (b *builder) numberOf(key string) int32 {
	n, ok := b.keys[key]
	if !ok {
		n = int32(len(b.keys))
		b.keys[key] = n
	}
	return n
}

// message returns the message in Record.Texts[i] and sets b.number[i].
func (b *builder) message(i int) *message {
	if !b.parsed[i] {
		b.messages[i] = parseMessage(b.record.Texts[i])
		b.number[i] = b.numberOf(b.messages[i].key)
		b.parsed[i] = true
	}
	return &b.messages[i]
}

// toolsOf returns the list of tools in Record.Texts[i].
func (b *builder) toolsOf(i int) *toolList {
	if i < 0 {
		return noTools
	}
	if b.lists[i] == nil {
		b.lists[i] = noTools
		if names := toolNames(b.record.Texts[i]); names != nil {
			b.lists[i] = &toolList{b.numberOf("tools\x00" + strings.Join(slices.Sorted(maps.Keys(names)), "\x00")), names}
		}
	}
	return b.lists[i]
}
