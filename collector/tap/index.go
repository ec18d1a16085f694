package tap

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// An IndexConfig sets the limits of an Index. The zero value is usually right.
type IndexConfig struct {
	// MaxBytes bounds the memory of the calls. Beyond it the index drops the prompts of claimed
	// calls first, then the oldest calls. Default 256 MiB.
	MaxBytes int64
	// MaxAge bounds the age of a call relative to the newest call. Default 2 h, longer than a
	// rollout takes.
	MaxAge time.Duration
	// Slack is the possible error between the times of a call and of its send. Default 15 s: the
	// clock of a tap read over HTTP is measured to about a second, and synchronized clocks differ
	// by less. A larger value costs little, because time only narrows the set of equal calls.
	Slack time.Duration
	// Since is the time from which the feeds deliver calls. Zero: they deliver all they have.
	Since time.Time
	// Patience is how long Join waits while no call arrives. Default 3 s.
	Patience time.Duration
}

func (c IndexConfig) withDefaults() IndexConfig {
	c.MaxBytes = cmp.Or(c.MaxBytes, 256<<20)
	c.MaxAge = cmp.Or(c.MaxAge, 2*time.Hour)
	c.Slack = cmp.Or(c.Slack, 15*time.Second)
	c.Patience = cmp.Or(c.Patience, 3*time.Second)
	return c
}

// An Index holds the calls that taps saw, and finds the calls of a rollout: see Join. Run fills it.
// Its methods are safe for concurrent use.
type Index struct {
	cfg   IndexConfig
	feeds []*feed
	seeds seeds

	mu     sync.Mutex
	chunks *chunks
	byMark map[fingerprint][]*sighting
	// byPrompt has the calls of each prompt. broken has the calls that failed or broke off.
	byPrompt, broken map[digest][]*sighting
	joined           map[digest]int
	all              []*sighting // in the order of arrival
	claimed          []*sighting // in the order of claiming
	small            int64       // bytes of sightings, without their prompts
	newest           time.Time
	// since is the time from which the index has all calls, except in the gaps.
	since time.Time
	gaps  []gap
	// asides are answered calls without token ids.
	asides []aside
	stats  IndexStats
	// spliced reports that a tap replaced the prompt of a server.
	spliced bool
	// refused counts the calls that Join did not find, by refusal.
	refused [len(refusals)]int64
	// unshown counts calls that belong to a rollout but that no answer shows, by kind.
	unshown map[string]int64
}

type sighting struct {
	call   Call // without ids and log-probabilities
	mark   fingerprint
	prompt prompt // what the engine got; unknown after it was dropped to save memory
	asked  prompt // what the server sent; unknown: the same as prompt
	digest digest // of prompt; zero if the tap did not see it
	tells  bool   // no other prompt produces its log-probabilities
	tokens int

	owner   owner  // who claimed it
	unshown string // the rollout that counts it as not shown by any answer; empty: none
	broken  bool   // the call failed or broke off; it is never claimed
	gone    bool   // it was dropped from the index
}

// An owner is one call of a rollout. The zero value means no owner.
type owner struct {
	rollout string
	call    int
}

// sightingBytes is the memory of a sighting without its prompts.
const sightingBytes = 640

// A gap is a period in which calls passed the tap that cannot be found.
type gap struct {
	from, to time.Time
	tokens   int // of the call's output; -1: unknown, or several calls
	// dialect is the call's dialect. Empty means any dialect. A server requests all turns in one
	// dialect, and summaries in another. The tokens of summaries are unknown.
	dialect string
}

// IndexStats counts what an index has seen.
type IndexStats struct {
	// Calls counts all calls that arrived. Claimed counts the calls that Join assigned.
	Calls, Claimed int64
	// Unread counts answered calls whose tokens or prompt no dialect could parse.
	Unread int64
	// Broken counts calls that an engine answered with an error, or whose answer broke off.
	Broken int64
	// Evicted counts unclaimed calls that were dropped because of MaxBytes or MaxAge.
	Evicted int64
	// Unshown counts calls that belong to a rollout but that no answer shows, by the words of
	// [tokenize.Unshown]. It is nil if there are none.
	Unshown map[string]int64
	// Retries counts unclaimed calls with the prompt of a claimed call. Others counts the other
	// unclaimed calls: of rollouts that failed, or of other programs.
	Retries, Others int64
	// Refused counts the calls that Join did not find, by Refusal.Word; nil if none.
	Refused map[string]int64
	// Bytes is the memory of the calls.
	Bytes int64
	// Read is the sum of the stats of the feeds that are Readers.
	Read ReaderStats
}

// NewIndex returns an index of the calls that the feeds deliver.
func NewIndex(cfg IndexConfig, feeds ...Feed) *Index {
	seeds := newSeeds()
	x := &Index{
		cfg: cfg.withDefaults(), seeds: seeds, chunks: newChunks(seeds),
		byMark: make(map[fingerprint][]*sighting), byPrompt: make(map[digest][]*sighting), broken: make(map[digest][]*sighting),
		joined: make(map[digest]int), unshown: make(map[string]int64),
	}
	x.since = x.cfg.Since
	for _, f := range feeds {
		x.feeds = append(x.feeds, &feed{Feed: f})
	}
	return x
}

// Continuity reports whether any tap replaced the prompt of a server.
func (x *Index) Continuity() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.spliced
}

// add adds a call, with its times by this machine's clock. It copies what it keeps.
func (x *Index) add(c *Call) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stats.Calls++
	x.spliced = x.spliced || c.Asked != nil
	if c.Ended.After(x.newest) {
		x.newest = c.Ended
	}
	switch {
	case c.Cut || c.Status < 200 || c.Status > 299:
		x.addBroken(c)
		x.bound()
		return // the server has no turn for it
	case len(c.Output) == 0:
		if c.OutputTokens != 0 {
			x.stats.Unread++
			x.asides = append(x.asides, aside{c.Began, c.Ended, c.Dialect, ""})
			x.gaps = append(x.gaps, gap{c.Began, c.Ended, int(c.OutputTokens), c.Dialect})
		}
		x.bound()
		return
	case len(c.Prompt) == 0:
		x.stats.Unread++
		x.gaps = append(x.gaps, gap{c.Began, c.Ended, len(c.Output), c.Dialect})
	}
	e := &sighting{call: *c, mark: x.seeds.of(c.Output, c.Logprobs), tells: telling(c.Logprobs), tokens: len(c.Output)}
	e.call.Prompt, e.call.Asked, e.call.Output, e.call.Logprobs = nil, nil, nil, nil
	if len(c.Prompt) > 0 {
		e.prompt = x.chunks.keep(c.Prompt)
		e.digest = x.chunks.digest(e.prompt)
		x.byPrompt[e.digest] = append(x.byPrompt[e.digest], e)
		if c.Asked != nil {
			e.asked = x.chunks.keep(c.Asked)
		}
	}
	x.byMark[e.mark] = append(x.byMark[e.mark], e)
	x.all = append(x.all, e)
	x.small += sightingBytes
	x.bound()
}

func (x *Index) addBroken(c *Call) {
	x.stats.Broken++
	if len(c.Prompt) == 0 {
		return
	}
	e := &sighting{call: *c, broken: true}
	e.call.Prompt, e.call.Asked, e.call.Output, e.call.Logprobs = nil, nil, nil, nil
	p := x.chunks.keep(c.Prompt)
	e.digest = x.chunks.digest(p)
	x.chunks.release(p)
	x.broken[e.digest] = append(x.broken[e.digest], e)
	x.all = append(x.all, e)
	x.small += sightingBytes
}

// bound drops calls beyond MaxAge and MaxBytes.
func (x *Index) bound() {
	old := x.newest.Add(-x.cfg.MaxAge)
	for len(x.all) > 0 && x.all[0].call.Ended.Before(old) {
		x.drop()
	}
	for x.bytes() > x.cfg.MaxBytes && len(x.all) > 0 {
		if len(x.claimed) > 0 {
			x.forget(x.claimed[0])
			x.claimed = x.claimed[1:]
		} else {
			x.drop()
		}
	}
	if x.stats.Calls%1024 == 0 { // the lists can be long
		x.gaps = slices.DeleteFunc(x.gaps, func(g gap) bool { return g.to.Before(old) })
		x.asides = slices.DeleteFunc(x.asides, func(a aside) bool { return a.ended.Before(old) })
	}
}

func (x *Index) bytes() int64 { return x.small + x.chunks.bytes }

// forget drops the prompts of a call and keeps the rest.
func (x *Index) forget(e *sighting) {
	x.chunks.release(e.prompt)
	x.chunks.release(e.asked)
	e.prompt, e.asked = prompt{}, prompt{}
}

// drop drops the oldest call. The index is then incomplete up to the end of that call.
func (x *Index) drop() {
	e := x.all[0]
	x.all = x.all[1:]
	if e.broken {
		x.small -= sightingBytes
		remove(x.broken, e.digest, e)
		return
	}
	if e.owner == (owner{}) {
		x.stats.Evicted++
		x.left(&x.stats, e)
	}
	x.forget(e)
	e.gone = true
	for len(x.claimed) > 0 && x.claimed[0].gone {
		x.claimed = x.claimed[1:]
	}
	x.small -= sightingBytes
	remove(x.byMark, e.mark, e)
	if e.digest != (digest{}) {
		remove(x.byPrompt, e.digest, e)
		if e.owner != (owner{}) {
			count(x.joined, e.digest, -1)
		}
	}
	if e.call.Ended.After(x.since) {
		x.since = e.call.Ended
	}
}

func count(of map[digest]int, d digest, n int) {
	if of[d] += n; of[d] == 0 {
		delete(of, d)
	}
}

func remove[K comparable](of map[K][]*sighting, key K, e *sighting) {
	same := of[key]
	if i := slices.Index(same, e); i >= 0 {
		same = slices.Delete(same, i, i+1)
	}
	if of[key] = same; len(same) == 0 {
		delete(of, key)
	}
}

func (x *Index) left(s *IndexStats, e *sighting) {
	if e.broken {
		return
	}
	if e.digest != (digest{}) && x.joined[e.digest] > 0 {
		s.Retries++
	} else {
		s.Others++
	}
}

// complete reports whether the index has every call with this number of output tokens that passed
// in w, in the dialect of like. tokens -1 means any number. The result holds only if the feeds have
// delivered all calls of that time.
func (x *Index) complete(w span, tokens int, like *sighting) bool {
	if w.from.IsZero() || w.from.Add(-x.cfg.Slack).Before(x.since) {
		return false
	}
	for _, g := range x.gaps {
		if (g.tokens < 0 || tokens < 0 || g.tokens == tokens) && (g.dialect == "" || g.dialect == like.call.Dialect) && x.within(w, g.from, g.to) {
			return false
		}
	}
	return true
}

// A span is the time of a send by this machine's clock. A zero time is unknown.
type span struct{ from, to time.Time }

// within reports whether a call with these times (this machine's clock) can belong to the span.
func (x *Index) within(w span, began, ended time.Time) bool {
	return (w.from.IsZero() || !ended.Before(w.from.Add(-x.cfg.Slack))) &&
		(w.to.IsZero() || !began.After(w.to.Add(x.cfg.Slack)))
}

// Stats returns the counts so far.
func (x *Index) Stats() IndexStats {
	var read ReaderStats
	for _, f := range x.feeds {
		if r, ok := f.Feed.(*Reader); ok {
			read = read.Plus(r.Stats())
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.stats
	s.Read = read
	for r, n := range x.refused {
		if n > 0 {
			if s.Refused == nil {
				s.Refused = make(map[string]int64)
			}
			s.Refused[Refusal(r).Word()] = n //nolint:gosec // there are few
		}
	}
	if len(x.unshown) > 0 {
		s.Unshown = maps.Clone(x.unshown)
	}
	s.Bytes = x.bytes()
	for _, e := range x.all {
		if e.owner == (owner{}) {
			x.left(&s, e)
		}
	}
	return s
}
