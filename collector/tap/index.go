package tap

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// An IndexConfig configures an Index. The zero value is usually suitable.
type IndexConfig struct {
	// MaxBytes limits the memory that the calls use. If the calls need more memory, the index first
	// drops the prompts of claimed calls and then the oldest calls. Default 256 MiB.
	MaxBytes int64
	// MaxAge is the maximum age of a call in the index, relative to the newest call. Default 2 h,
	// which is longer than a rollout takes.
	MaxAge time.Duration
	// Slack is the largest possible error when the time of a call is compared with the time of a
	// send. Default 15 s. Over HTTP, the skew of a tap's clock is measured with an error of about a
	// second, and synchronized clocks differ by less than that. A larger value costs little,
	// because times are only used to choose among calls with the same fingerprint.
	Slack time.Duration
	// Since is the time from which the feeds deliver calls. Zero means that the feeds deliver all
	// calls that they have.
	Since time.Time
	// Patience is the time after which Join stops waiting if no call arrives. Default 3 s.
	Patience time.Duration
}

func (c IndexConfig) withDefaults() IndexConfig {
	c.MaxBytes = cmp.Or(c.MaxBytes, 256<<20)
	c.MaxAge = cmp.Or(c.MaxAge, 2*time.Hour)
	c.Slack = cmp.Or(c.Slack, 15*time.Second)
	c.Patience = cmp.Or(c.Patience, 3*time.Second)
	return c
}

// An Index contains the calls that taps recorded. [Index.Run] fills it. [Index.Join] finds the
// calls of a rollout. The methods of an Index are safe for concurrent use.
type Index struct {
	cfg   IndexConfig
	feeds []*feed
	seeds seeds

	mu     sync.Mutex
	chunks *chunks
	byMark map[fingerprint][]*sighting
	// byPrompt contains the answered calls, keyed by the digest of the prompt. broken contains the
	// calls that failed or were cut off, keyed in the same way.
	byPrompt, broken map[digest][]*sighting
	joined           map[digest]int
	all              []*sighting // in the order of arrival
	claimed          []*sighting // in the order of claiming
	small            int64       // memory of the sightings without their prompts, in bytes
	newest           time.Time
	// since is the time from which the index contains all calls, except for the calls in gaps.
	since time.Time
	gaps  []gap
	// asides contains the answered calls without token ids.
	asides []aside
	stats  IndexStats
	// spliced is true if a tap has replaced a prompt that a server sent.
	spliced bool
	refused [len(refusals)]int64
	// unshown counts, by kind, the calls that belong to a rollout although no answer from the
	// server shows them.
	unshown map[string]int64
}

type sighting struct {
	call   Call // without ids and log-probabilities
	mark   fingerprint
	prompt prompt // the prompt that the engine received; unknown after it was dropped to save memory
	asked  prompt // the prompt that the server sent; unknown if it is the same as the field prompt
	digest digest // the digest of the field prompt; zero if the tap did not see the prompt
	tells  bool   // no other prompt can produce the call's log-probabilities
	tokens int

	owner   owner  // the call that claimed the sighting
	unshown string // the rollout that has counted the call as unshown, or empty
	broken  bool   // the call failed or was cut off, so it is never claimed
	gone    bool   // the call was dropped from the index
}

// An owner identifies one call in a rollout. The zero value means no owner.
type owner struct {
	rollout string
	call    int
}

// sightingBytes is the approximate memory of a sighting without its prompts.
const sightingBytes = 640

// A gap is a period in which calls passed through the tap that are not in the index.
type gap struct {
	from, to time.Time
	tokens   int // the number of output tokens; -1 if unknown or if there were several calls
	// dialect is the call's dialect. Empty means any dialect. The dialect matters because a server
	// requests all turns in one dialect and summaries in another, and the tap does not see the
	// tokens of summaries.
	dialect string
}

// IndexStats counts the calls that an index has received.
type IndexStats struct {
	// Calls counts all calls that the feeds delivered. Claimed counts the calls that Join assigned
	// to a rollout.
	Calls, Claimed int64
	// Unread counts answered calls whose output tokens or prompt are unknown because no dialect
	// could parse them.
	Unread int64
	// Broken counts calls whose answer was an error or was cut off.
	Broken int64
	// Evicted counts unclaimed calls that were dropped because of MaxBytes or MaxAge.
	Evicted int64
	// Unshown counts calls that belong to a rollout although no answer from the server shows them.
	// The keys are the words in [tokenize.Unshown]. The map is nil if there are no such calls.
	Unshown map[string]int64
	// Retries counts unclaimed calls with the same prompt as a claimed call. Others counts the
	// other unclaimed calls, which came from failed rollouts or from other programs.
	Retries, Others int64
	// Refused counts the calls that Join did not find, by [Refusal.Word]. The map is nil if Join
	// found all calls.
	Refused map[string]int64
	// Bytes is the memory that the calls use, in bytes.
	Bytes int64
	// Read is the sum of the stats of all feeds of type *Reader.
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

// Continuity reports whether any tap has replaced a prompt that a server sent.
func (x *Index) Continuity() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.spliced
}

// add adds a call whose times have been converted to this machine's clock. It keeps no reference to
// c or its slices.
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
		return // the server does not store a turn for this call
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
	x.small += sightingBytes + e.call.insideBytes()
	x.bound()
}

func (x *Index) addBroken(c *Call) {
	x.stats.Broken++
	if len(c.Prompt) == 0 {
		return
	}
	e := &sighting{call: *c, broken: true}
	e.call.dropInside()
	e.call.Prompt, e.call.Asked, e.call.Output, e.call.Logprobs = nil, nil, nil, nil
	p := x.chunks.keep(c.Prompt)
	e.digest = x.chunks.digest(p)
	x.chunks.release(p)
	x.broken[e.digest] = append(x.broken[e.digest], e)
	x.all = append(x.all, e)
	x.small += sightingBytes
}

// bound drops calls and prompts until the index respects MaxAge and MaxBytes.
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
	if x.stats.Calls%1024 == 0 { // not after every call, because the lists can be long
		x.gaps = slices.DeleteFunc(x.gaps, func(g gap) bool { return g.to.Before(old) })
		x.asides = slices.DeleteFunc(x.asides, func(a aside) bool { return a.ended.Before(old) })
	}
}

func (x *Index) bytes() int64 { return x.small + x.chunks.bytes }

// forget drops the prompts of a call and the values from inside it, and keeps its other fields.
func (x *Index) forget(e *sighting) {
	x.chunks.release(e.prompt)
	x.chunks.release(e.asked)
	e.prompt, e.asked = prompt{}, prompt{}
	x.small -= e.call.insideBytes()
	e.call.dropInside()
}

// drop drops the oldest call. From then on, the index is incomplete for the time before the end of
// that call.
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

// complete reports whether the index contains every call in the span w that has this number of
// output tokens and the same dialect as the sighting like. If tokens is -1, the number does not
// matter. The result is only valid if the feeds have delivered all calls up to the end of w.
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

// A span is the period of a send, measured by this machine's clock. A zero time is unknown.
type span struct{ from, to time.Time }

// within reports whether a call with these times can belong to the span. The times must be measured
// by this machine's clock.
func (x *Index) within(w span, began, ended time.Time) bool {
	return (w.from.IsZero() || !ended.Before(w.from.Add(-x.cfg.Slack))) &&
		(w.to.IsZero() || !began.After(w.to.Add(x.cfg.Slack)))
}

// Stats returns the current stats.
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
			s.Refused[Refusal(r).Word()] = n //nolint:gosec // there are few refusals
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
