package continuity

import (
	"container/list"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollout-rl/rollout/collector/tap"
)

// A Table knows the latest calls and gives a prompt that continues one of them its own
// tokens. It is safe for concurrent use, and nothing in it blocks but for its mutex.
type Table struct {
	cfg  Config
	m    markers
	seed uint64 // of the hashes, so that nobody can make prompts of one hash

	mu    sync.Mutex
	sites map[uint64]*site
	live  list.List // of *site, the one used last at the end
	gone  list.List // of *site, those that lost their calls to MaxBytes: they are blind
	bytes int64
	calls int

	counts [reasons]atomic.Int64
}

// New returns an empty table. It refuses a tokenizer and a template for which it cannot
// prove where the model's turns are; that error wraps [ErrTemplate].
func New(cfg Config) (*Table, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("continuity: %w", err)
	}
	m, err := findMarkers(&cfg)
	if err != nil {
		return nil, err
	}
	return &Table{cfg: cfg, m: m, seed: rand.Uint64(), sites: make(map[uint64]*site)}, nil
}

// Prompt returns the prompt to send to the engine instead of asked, or nil for asked itself,
// and the number of its turns that differ from asked. It does not keep asked, and the caller
// owns the result.
func (t *Table) Prompt(asked []int32) (sent []int32, spliced int) {
	sent, spliced, reason := t.decide(asked)
	t.counts[reason].Add(1)
	return sent, spliced
}

// Answered tells the table what became of a call. Every call for which Prompt was asked
// has to be told, and before the server can have the whole answer: else the next prompt
// comes first, or a call that was forgotten is taken for another one. It copies what it
// keeps.
func (t *Table) Answered(c *tap.Call) {
	asked := askedBy(c)
	var room [64]place
	places := t.m.places(room[:0], t.seed, asked)
	if !open(places, asked) {
		return
	}
	before, own := places[:len(places)-1], places[len(places)-1]
	t.mu.Lock()
	defer t.mu.Unlock()
	if failed := c.Status >= 400; failed || c.Cut {
		if c.Asked != nil {
			t.lost(own.hash, before, asked)
		}
		if failed {
			return // a server that is told of an error has no output
		}
	}
	now := t.cfg.Now()
	t.expire(now)
	s := t.sites[own.hash]
	if s == nil {
		s = &site{hash: own.hash}
		s.put(&t.live)
		t.sites[own.hash] = s
		t.bytes += siteBytes
	} else if !s.is(asked) {
		return // two prompts of one hash: the later one is not kept
	}
	s.touch(now)
	if c.Cut || len(c.Output) == 0 || len(s.calls) >= maxCalls {
		s.blind = true
	}
	if s.blind {
		return
	}
	if !t.add(s, c, asked, before) {
		s.blind = true
	}
	t.shrink()
}

// Recall tells a table that begins anew of a call in a spool. Calls come in the order of the
// spool, and before Prompt is asked for any. What they continued counts as continued.
func (t *Table) Recall(c *tap.Call) {
	_, _, _ = t.decide(askedBy(c))
	t.Answered(c)
}

// askedBy returns the prompt that the server sent for a call.
func askedBy(c *tap.Call) []int32 {
	if c.Asked != nil {
		return c.Asked
	}
	return c.Prompt
}

// lost notes that a spliced prompt, given by its hash, got no answer.
func (t *Table) lost(hash uint64, before []place, asked []int32) {
	if s, _ := t.longest(before, asked); s != nil {
		for _, c := range s.calls {
			c.lose(hash)
		}
	}
}

// add adds a call to its site. It returns false where the table does not know the calls
// from which the prompt was spliced.
func (t *Table) add(s *site, c *tap.Call, asked []int32, before []place) bool {
	n := &call{end: len(asked), sent: len(asked)}
	if p, at := t.longest(before, asked); p != nil && len(p.calls) > 0 {
		n.parent = p.calls[0]
		if c.Asked != nil {
			end := t.m.endOf(asked, at)
			i := slices.IndexFunc(p.calls, func(q *call) bool { return q.made(c.Prompt, asked, end) })
			if i < 0 {
				return false
			}
			n.parent, n.cut, n.sent = p.calls[i], end+1, len(c.Prompt)
			n.spliced = n.parent.spliced
			if !slices.Equal(asked[at:end+1], n.parent.output) {
				n.spliced++
			}
		}
		n.start = n.parent.end
	} else if c.Asked != nil {
		return false
	}
	for _, other := range s.calls {
		if n.cut == other.cut && (n.cut == 0 || n.parent == other.parent) && slices.Equal(c.Output, other.output) {
			other.times++ // the same history: its agent does not matter
			return true
		}
	}
	n.ids, n.output, n.refs = slices.Clone(asked[n.start:]), slices.Clone(c.Output), 1
	n.times = 1
	if n.parent != nil {
		n.parent.refs++
	}
	t.bytes += n.bytes()
	t.calls++
	s.calls = append(s.calls, n)
	return true
}

// made reports whether sent is what the engine was sent for c, its output, and asked behind
// the end of its turn.
func (c *call) made(sent, asked []int32, end int) bool {
	n := c.sent + len(c.output)
	if end < 0 || len(sent) != n+len(asked)-end-1 || !slices.Equal(sent[n:], asked[end+1:]) || !slices.Equal(sent[c.sent:n], c.output) {
		return false
	}
	return slices.Equal(sent[:c.sent], c.appendSent(nil, asked))
}

// longest returns the site of the longest prompt that asked begins with, and the length of
// that prompt. It is nil where no such prompt is known.
func (t *Table) longest(before []place, asked []int32) (*site, int) {
	for _, p := range slices.Backward(before) {
		if s := t.sites[p.hash]; s != nil && s.is(asked[:p.at]) {
			return s, p.at
		}
	}
	return nil, 0
}

// endOf returns the index of the token that ends the turn which begins at from, or -1.
func (m *markers) endOf(ids []int32, from int) int {
	if i := slices.Index(ids[from:], m.end); i >= 0 {
		return from + i
	}
	return -1
}

// expire forgets what was not used for MaxAge.
func (t *Table) expire(now time.Time) {
	for _, l := range []*list.List{&t.live, &t.gone} {
		for s := oldest(l); s != nil && now.Sub(s.used) >= t.cfg.MaxAge; s = oldest(l) {
			t.drop(s)
			t.forget(s)
		}
	}
}

// shrink keeps the table within MaxBytes. A site that goes before its time stays as a blind
// one, without its calls: an agent whose call was there could else be given the tokens of
// another one with the same prompt. Blind ones take a quarter of MaxBytes at most.
func (t *Table) shrink() {
	for t.bytes > t.cfg.MaxBytes && t.live.Len() > 0 {
		s := oldest(&t.live)
		t.drop(s)
		t.live.Remove(s.place)
		s.put(&t.gone)
		s.blind = true
		if int64(t.gone.Len())*siteBytes > t.cfg.MaxBytes/4 {
			t.forget(oldest(&t.gone))
		}
	}
}

// oldest returns the site that was used longest ago, or nil for an empty list.
func oldest(l *list.List) *site {
	if e := l.Front(); e != nil {
		s, _ := e.Value.(*site)
		return s
	}
	return nil
}

// drop takes the calls out of a site. Calls that others continue stay in memory for these.
func (t *Table) drop(s *site) {
	for _, c := range s.calls {
		for ; c != nil; c = c.parent {
			if c.refs--; c.refs > 0 {
				break
			}
			t.bytes -= c.bytes()
			t.calls--
		}
	}
	s.calls = nil
}

// forget takes a site without calls out of the table.
func (t *Table) forget(s *site) {
	s.in.Remove(s.place)
	delete(t.sites, s.hash)
	t.bytes -= siteBytes
}
