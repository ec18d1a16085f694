package tap

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// An IndexConfig says how much of what taps saw is kept in memory. The zero value is usual.
type IndexConfig struct {
	// MaxBytes bounds the memory of the calls. Beyond it the prompts of calls that were
	// claimed go first, then the oldest calls. Default 256 MiB.
	MaxBytes int64
	// MaxAge is how much older than the newest call a call may be. Default 2 h, which is
	// longer than a rollout takes.
	MaxAge time.Duration
	// Slack is by how much the times of a call and of its send may be wrong against each
	// other. Default 15 s: the clock of a tap that is read over HTTP is measured to about a
	// second, and clocks that are kept differ by less. A larger one costs little, because time
	// only narrows down which calls are alike.
	Slack time.Duration
	// Since is from when on the feeds deliver calls. Zero: they deliver all that they have.
	Since time.Time
	// Patience is how long Join waits while no call comes. Default 3 s.
	Patience time.Duration
}

func (c IndexConfig) withDefaults() IndexConfig {
	if c.MaxBytes == 0 {
		c.MaxBytes = 256 << 20
	}
	if c.MaxAge == 0 {
		c.MaxAge = 2 * time.Hour
	}
	if c.Slack == 0 {
		c.Slack = 15 * time.Second
	}
	if c.Patience == 0 {
		c.Patience = 3 * time.Second
	}
	return c
}

// An Index has the calls that taps saw, and finds those of a rollout: see Join. Run fills it.
// Its methods are safe for concurrent use.
type Index struct {
	cfg   IndexConfig
	feeds []*feed
	seeds seeds

	mu     sync.Mutex
	chunks *chunks
	byMark map[fingerprint][]*sighting
	// byPrompt has the calls of each prompt, broken those that failed or whose answer broke off.
	byPrompt, broken map[digest][]*sighting
	// joined counts those of them that were claimed.
	joined  map[digest]int
	all     []*sighting // in the order in which they came
	claimed []*sighting // in the order in which they were claimed
	small   int64       // bytes of sightings without their prompts
	newest  time.Time
	// since is the time from which on all calls are here, but for the gaps.
	since time.Time
	gaps  []gap
	// asides are calls without token ids.
	asides []aside
	stats  IndexStats
	// spliced reports that a tap gave an engine another prompt than the server's.
	spliced bool
	// refused counts calls that Join did not find.
	refused [len(refusals)]int64
	// unshown counts calls of rollouts that no answer shows, by the word of their kind.
	unshown map[string]int64
}

// A sighting is a call that the index has.
type sighting struct {
	call   Call // without ids and log-probabilities
	mark   fingerprint
	prompt prompt // what the engine got; not known, where the memory was needed
	asked  prompt // what the server had sent; not known: the same
	digest digest // of prompt; zero where the tap did not see it
	tells  bool   // no other prompt gives its log-probabilities
	tokens int

	owner   owner  // who claimed it
	unshown string // the rollout for which it is counted, though no answer shows it; empty: none
	broken  bool   // it failed, or its answer broke off: it is never claimed
	gone    bool   // it was dropped
}

// An owner is a call of a rollout. The zero value is nobody.
type owner struct {
	rollout string
	call    int
}

// sightingBytes is what a sighting takes besides its prompts.
const sightingBytes = 640

// A gap is a time in which calls passed that nobody can find.
type gap struct {
	from, to time.Time
	tokens   int // of the call's output; -1: not known, or several calls
	// dialect is that of the call; empty: any. A server asks for all turns in one dialect, and
	// for summaries in another, of whose answers the tokens are not known.
	dialect string
}

// IndexStats says what an index has seen.
type IndexStats struct {
	// Calls are all calls that came, Claimed those that Join gave away.
	Calls, Claimed int64
	// Unread are calls that were answered and whose tokens or prompt no dialect could read.
	Unread int64
	// Broken are calls that an engine answered with an error, or whose answer broke off.
	Broken int64
	// Evicted are calls that were dropped for MaxBytes or MaxAge before anybody claimed them.
	Evicted int64
	// Unshown counts the calls that Join found to be of a rollout and that its answers do not
	// show: by the words of [tokenize.Unshown]. It is nil where there are none.
	Unshown map[string]int64
	// Retries are calls that nobody claimed and that have the prompt of one that was claimed.
	// Others are the rest that nobody claimed: of rollouts that failed, or of other programs.
	Retries, Others int64
	// Refused counts the calls that Join did not find, by the Word of the reason. It is nil
	// where it found all.
	Refused map[string]int64
	// Bytes is the memory of the calls.
	Bytes int64
	// Read is the sum of what the feeds that are Readers have read and could not read.
	Read ReaderStats
}

// NewIndex returns an index of the calls that the feeds will deliver.
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

// Continuity reports whether any tap gave an engine another prompt than the server's.
func (x *Index) Continuity() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.spliced
}

// add gives the index a call that a tap saw, with its times by this machine's clock. It
// copies what it keeps.
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
		return // its server has no turn of it
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

// addBroken keeps that a call failed or broke off, and with which prompt.
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

// bound drops what is too old or too much.
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
	if x.stats.Calls%1024 == 0 { // there may be many
		x.gaps = slices.DeleteFunc(x.gaps, func(g gap) bool { return g.to.Before(old) })
		x.asides = slices.DeleteFunc(x.asides, func(a aside) bool { return a.ended.Before(old) })
	}
}

func (x *Index) bytes() int64 { return x.small + x.chunks.bytes }

// forget drops the prompts of a call, and keeps that it was there.
func (x *Index) forget(e *sighting) {
	x.chunks.release(e.prompt)
	x.chunks.release(e.asked)
	e.prompt, e.asked = prompt{}, prompt{}
}

// drop drops the oldest call. From then on calls of its time may be missing.
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

// remove removes a call from those of a key.
func remove[K comparable](of map[K][]*sighting, key K, e *sighting) {
	if same := without(of[key], e); len(same) > 0 {
		of[key] = same
	} else {
		delete(of, key)
	}
}

// left counts a call that nobody claimed.
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

func without(all []*sighting, e *sighting) []*sighting {
	for i := range all {
		if all[i] == e {
			return append(all[:i], all[i+1:]...)
		}
	}
	return all
}

// complete reports whether every call of so many tokens that passed in this time, in the
// dialect of like, is here, provided that the feeds have delivered all of that time; tokens -1:
// every call.
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

// A span is the time of a send by this machine's clock. A zero time is not known.
type span struct{ from, to time.Time }

// within reports whether something of this time, by the clock of its tap, may be of the
// span.
func (x *Index) within(w span, began, ended time.Time) bool {
	return (w.from.IsZero() || !ended.Before(w.from.Add(-x.cfg.Slack))) &&
		(w.to.IsZero() || !began.After(w.to.Add(x.cfg.Slack)))
}

// Stats returns what was seen until now.
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
