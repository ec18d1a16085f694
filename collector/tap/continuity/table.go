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

// A Table keeps the latest calls and splices their tokens into the prompts that continue these
// calls. It is safe for concurrent use. Its methods block only on its mutex.
type Table struct {
	cfg  Config
	m    markers
	seed uint64 // seed of the hashes; it is random, so that clients cannot construct collisions

	mu    sync.Mutex
	sites map[uint64]*site
	live  list.List // list of *site; the most recently used site is at the back
	gone  list.List // list of *site; all are blind, because their calls were dropped to respect MaxBytes
	bytes int64
	calls int

	counts [reasons]atomic.Int64
}

// New returns an empty table. If New cannot prove where the model's turns are in prompts that use
// this tokenizer and template, the error wraps [ErrTemplate].
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

// Prompt returns the prompt that must be sent to the engine instead of asked, and the number of
// turns in which the two prompts differ. The returned prompt is nil if asked must be sent
// unchanged. The caller owns the returned prompt. Prompt does not keep asked.
func (t *Table) Prompt(asked []int32) (sent []int32, spliced int) {
	sent, spliced, reason := t.decide(asked)
	t.counts[reason].Add(1)
	return sent, spliced
}

// Answered adds the result of a call. The caller must report every call whose prompt was passed to
// Prompt, before the server can have received the complete answer. Otherwise, the next prompt can
// arrive before the result, or the call of another agent can be mistaken for the missing call.
// Answered keeps no references to the slices in c.
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
			return // the server received an error instead of an output
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
		return // the hashes collide, and the table does not keep the later prompt
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

// Recall replays a call from a spool into a new table. The caller must replay the calls in the
// order of the spool, before the first call to Prompt. If a replayed prompt continued an earlier
// call, the new table also records this.
func (t *Table) Recall(c *tap.Call) {
	_, _, _ = t.decide(askedBy(c))
	t.Answered(c)
}

func askedBy(c *tap.Call) []int32 {
	if c.Asked != nil {
		return c.Asked
	}
	return c.Prompt
}

// lost marks the spliced prompt with this hash as unanswered.
func (t *Table) lost(hash uint64, before []place, asked []int32) {
	if s, _ := t.longest(before, asked); s != nil {
		for _, c := range s.calls {
			c.lose(hash)
		}
	}
}

// add adds a call to its site. It returns false if the table does not know the call whose output
// was spliced into the prompt.
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
			other.times++ // the history is the same, so the agent does not matter
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

// made reports whether the prompt sent consists of c's own sent prompt, c's output, and the ids in
// asked after the offset end.
func (c *call) made(sent, asked []int32, end int) bool {
	n := c.sent + len(c.output)
	if end < 0 || len(sent) != n+len(asked)-end-1 || !slices.Equal(sent[n:], asked[end+1:]) || !slices.Equal(sent[c.sent:n], c.output) {
		return false
	}
	return slices.Equal(sent[:c.sent], c.appendSent(nil, asked))
}

// longest returns the site of the longest known prompt with which asked begins, and the length of
// that prompt. The site is nil if asked begins with no known prompt. The caller must hold t.mu.
func (t *Table) longest(before []place, asked []int32) (*site, int) {
	for _, p := range slices.Backward(before) {
		if s := t.sites[p.hash]; s != nil && s.is(asked[:p.at]) {
			return s, p.at
		}
	}
	return nil, 0
}

func (m *markers) endOf(ids []int32, from int) int {
	if i := slices.Index(ids[from:], m.end); i >= 0 {
		return from + i
	}
	return -1
}

func (t *Table) expire(now time.Time) {
	for _, l := range []*list.List{&t.live, &t.gone} {
		for s := oldest(l); s != nil && now.Sub(s.used) >= t.cfg.MaxAge; s = oldest(l) {
			t.drop(s)
			t.forget(s)
		}
	}
}

// shrink drops the least recently used calls until the table fits into MaxBytes. It keeps the sites
// of these calls and makes the sites blind. Otherwise, an agent whose call was dropped could get
// the tokens of another agent with the same prompt. The kept sites take at most a quarter of
// MaxBytes.
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

func oldest(l *list.List) *site {
	if e := l.Front(); e != nil {
		s, _ := e.Value.(*site)
		return s
	}
	return nil
}

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

func (t *Table) forget(s *site) {
	s.in.Remove(s.place)
	delete(t.sites, s.hash)
	t.bytes -= siteBytes
}
