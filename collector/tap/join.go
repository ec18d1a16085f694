package tap

import (
	"context"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Rollout is what is known of the calls of a rollout.
type Rollout struct {
	// ID names the rollout: two rollouts never get one call.
	ID    string
	Sends []Send
	// Foreign, where set, reports whether a prompt is shown to be another rollout's. head
	// returns the first n ids of it, or all where it has fewer.
	Foreign func(head func(n int) []int32) bool
}

// A Send is one request to the server, with the calls that its answer shows, in order.
type Send struct {
	// From and To are when it began and was over, by this machine's clock. A zero time is
	// not known.
	From, To time.Time
	// PromptTokens is the sum that the server counted over the prompts of the calls, or -1
	// where no such sum is known.
	PromptTokens int64
	// Summaries is how often the server summarized the history in the send and began it anew:
	// a compaction. Then the calls beside a call show nothing of it.
	Summaries int
	Calls     []Sampled
}

// A Sampled is what an answer says of a call.
type Sampled struct {
	Output   []int32
	Logprobs []float32 // NaN: the server gave none
}

// A Match is what Join found of a call.
type Match struct {
	// Call is what the tap saw. Its prompts are copies. Output and Logprobs are not set.
	// What differs between calls of which each may be this one is not known: an empty
	// Finish or Version, a nil field of Sampling. It is nil where Refusal is set.
	Call    *Call
	Refusal Refusal
	// Unshown counts the calls beside this one that no answer shows: those that have its
	// prompt and, with the first call of a send, the summaries of the send. A call is counted
	// once, and only where it is shown to be one of the rollout.
	Unshown tokenize.Unshown
}

// A Refusal says why a call was not found.
type Refusal uint8

// The refusals.
const (
	RefusedNone    Refusal = iota
	RefusedUnseen          // no tap saw such a call in the time of its send
	RefusedLike            // several prompts are possible, and nothing decides between them
	RefusedWeak            // only one call is like it, which says too little, and others may be missing
	RefusedCount           // the prompts of its send do not add up to what the server counted
	RefusedForeign         // the prompt names another agent
	RefusedTaken           // every call like it belongs to another rollout
	RefusedEvicted         // its prompt is not in memory any more
	RefusedUnread          // the tap saw it without its prompt
)

var refusals = [...]string{
	"", "no tap saw such a call in the time of its send", "several prompts are possible", "only one call is like it, which says too little, and others may be missing",
	"the prompts of its send do not add up to what the server counted", "the prompt that the tap saw names another agent", "every call like it belongs to another rollout",
	"its prompt is no longer in memory", "the tap saw it without its prompt",
}

// Refusals returns all refusals but RefusedNone.
func Refusals() []Refusal {
	var all []Refusal
	for r := range refusals[1:] {
		all = append(all, Refusal(r+1)) //nolint:gosec // there are few
	}
	return all
}

// String returns what people are told.
func (r Refusal) String() string { return refusals[r] }

var refusalWords = [...]string{"", "unseen", "alike", "weak", "count", "foreign", "taken", "evicted", "unread"}

// Word returns the word of r in counts; it is empty for RefusedNone.
func (r Refusal) Word() string { return refusalWords[r] }

// Join finds the calls of a rollout, one Match for each, over all sends. A call is found
// only if one prompt is possible for it:
//
//   - Only a call with the same sampled ids and the same bits of every log-probability, seen
//     in the time of the send, may be it.
//   - If all such calls have one prompt, that is it, provided that no other can be missing:
//     every call of that time was seen, or the log-probabilities are of many tokens of which
//     the engine was not sure, so that no other prompt gives them.
//   - If they have several prompts, and every call of that time was seen, the neighbours in
//     the rollout decide: exactly one prompt begins with the prompt and the output of the call
//     before it, or the prompt of the next one begins with it, or it begins with the prompt of
//     the call before it, which no other call has. Neighbours that disagree decide nothing.
//     Where the rollout has as many such calls as there are prompts, each of which begins with
//     another, they are in that order.
//   - The prompts of a send whose calls are all found have the sum that the server counted.
//   - A call is never given to two.
//
// Join waits until the taps have delivered all that there was when the rollout was over. It
// waits for a tap that is away, as one is that is started again, but no longer than IndexConfig.Patience while
// nothing comes. What it finds then is as sure; it may be less.
func (x *Index) Join(ctx context.Context, r *Rollout) []Match {
	all := x.await(ctx, r.over())
	x.mu.Lock()
	defer x.mu.Unlock()
	j := x.newJoin(r, all)
	j.resolve()
	return j.claim()
}

// A join is one try to find the calls of a rollout. The index is locked.
type join struct {
	x *Index
	r *Rollout
	// delivered reports whether the feeds have delivered all of the rollout's time.
	delivered bool
	calls     []joining
	// counted are the calls that no answer shows and that are counted, by their unshown.
	counted map[*string]bool
}

// A joining is a call that is looked for.
type joining struct {
	send int
	own  Sampled
	span span
	like []*sighting // that may be it, by fingerprint and time
	// options are the different prompts of like, one entry for each.
	options []*sighting
	tells   bool
	known   *sighting // the one of options that it is; nil: not known
	refused Refusal
}

func (x *Index) newJoin(r *Rollout, delivered bool) *join {
	j := &join{x: x, r: r, delivered: delivered}
	for i := range r.Sends {
		s := &r.Sends[i]
		for _, own := range s.Calls {
			c := joining{send: i, own: own, span: span{s.From, s.To}, tells: telling(own.Logprobs), refused: RefusedUnseen}
			if len(own.Output) > 0 {
				j.look(&c)
			}
			j.calls = append(j.calls, c)
		}
	}
	return j
}

// mostForeign bounds the prompts that are looked at for one call, some 10 µs each. A fleet that
// answers with one word has as many that are alike.
const mostForeign = 1000

// look finds the calls that may be c.
func (j *join) look(c *joining) {
	x := j.x
	seen, asked := make(map[digest]bool), 0
	for _, e := range x.byMark[x.seeds.of(c.own.Output, c.own.Logprobs)] {
		if !x.within(c.span, e.call.Began, e.call.Ended) {
			continue
		}
		if asked++; j.r.Foreign != nil && asked <= mostForeign && e.prompt.known() && j.r.Foreign(e.prompt.head) {
			c.refused = RefusedForeign
			continue
		}
		c.like = append(c.like, e)
		if !seen[e.digest] {
			seen[e.digest] = true
			c.options = append(c.options, e)
		}
	}
	if len(c.options) > 1 {
		c.refused = RefusedLike
	}
	for _, e := range c.options {
		switch {
		case e.digest == (digest{}):
			c.refused = RefusedUnread
		case !e.prompt.known():
			c.refused = RefusedEvicted
		default:
			continue
		}
		c.options = nil // it may be this one, of which nothing is known
		return
	}
	if len(c.options) == 1 {
		c.refused = RefusedWeak
	}
}

// resolve decides about every call. A decision that the others contradict in the end was no
// evidence for them, so that all is decided anew without it.
func (j *join) resolve() {
	for {
		for again := true; again; {
			again = false
			for k := range j.calls {
				if c := &j.calls[k]; c.known == nil && len(c.options) > 0 {
					c.known = j.decide(k)
					again = again || c.known != nil
				}
			}
		}
		if !j.refuteNeighbours() && !j.refuteCounts() {
			return
		}
		for k := range j.calls {
			j.calls[k].known = nil
		}
	}
}

// refuteNeighbours refuses the calls about which their neighbours disagree, now that more of
// these are known, and reports whether there were any.
func (j *join) refuteNeighbours() (refuted bool) {
	for k := range j.calls {
		if c := &j.calls[k]; c.known != nil && j.decide(k) != c.known {
			c.options, c.refused, refuted = nil, RefusedLike, true
		}
	}
	return refuted
}

// refuteCounts refuses the calls of the sends whose prompts do not add up to what the server
// counted, and reports whether there were any.
func (j *join) refuteCounts() (refuted bool) {
	for i := range j.r.Sends {
		want := j.r.Sends[i].PromptTokens
		if want < 0 {
			continue
		}
		var sum int64
		known, missing := 0, int64(0)
		for k := range j.calls {
			if c := &j.calls[k]; c.send != i {
				continue
			} else if c.known != nil {
				sum += int64(c.known.prompt.len())
				known++
			} else {
				missing++
			}
		}
		// A prompt that is not known has one token at least.
		if known == 0 || sum == want && missing == 0 || missing > 0 && sum+missing <= want {
			continue
		}
		refuted = true
		for k := range j.calls {
			if c := &j.calls[k]; c.send == i && c.known != nil {
				c.options, c.refused = nil, RefusedCount
			}
		}
	}
	return refuted
}

// decide returns what call k is, or nil.
func (j *join) decide(k int) *sighting {
	c := &j.calls[k]
	complete := j.delivered && !slices.ContainsFunc(c.options, func(e *sighting) bool { return !j.x.complete(c.span, len(c.own.Output), e) })
	if len(c.options) == 1 {
		if complete || c.tells {
			return c.options[0]
		}
		return nil
	}
	if !complete || j.rewritten(k) {
		return nil // the right one may be missing, or the history another one
	}
	before, after := j.neighbour(k-1), j.neighbour(k+1)
	var found *sighting
	for _, shows := range []func(e *sighting) bool{
		func(e *sighting) bool { return before != nil && continues(before, e) },
		func(e *sighting) bool { return after != nil && asked(after.known).longer(asked(e)) },
		func(e *sighting) bool {
			return before != nil && j.alone(before) && asked(e).longer(asked(before.known))
		},
	} {
		one := only(c.options, shows)
		switch {
		case one == nil:
		case found != nil && found != one:
			return nil
		default:
			found = one
		}
	}
	if found == nil {
		found = j.rung(k)
	}
	return found
}

// rung returns what call k is, if the rollout has as many such calls as there are prompts for
// them, and each prompt begins with the one before it: a loop that the model did not leave. Then
// they are in the order of their lengths. It is nil elsewhere.
func (j *join) rung(k int) *sighting {
	c := &j.calls[k]
	calls, at := 0, 0
	for i := range j.calls {
		if !slices.Equal(j.calls[i].options, c.options) {
			continue
		}
		if j.rewritten(i) {
			return nil
		}
		if i == k {
			at = calls
		}
		calls++
	}
	ladder := slices.SortedFunc(slices.Values(c.options), func(a, b *sighting) int { return asked(a).len() - asked(b).len() })
	for i := range ladder[1:] {
		if !asked(ladder[i+1]).longer(asked(ladder[i])) {
			return nil
		}
	}
	if calls != len(ladder) {
		return nil
	}
	return ladder[at]
}

// neighbour returns call k where it is known and may show something; else nil.
func (j *join) neighbour(k int) *joining {
	if k < 0 || k >= len(j.calls) || j.calls[k].known == nil || j.rewritten(k) {
		return nil
	}
	return &j.calls[k]
}

func (j *join) rewritten(k int) bool { return j.r.Sends[j.calls[k].send].Summaries > 0 }

// only returns the one entry for which shows is true; nil: there is none, or several.
func only(all []*sighting, shows func(*sighting) bool) (one *sighting) {
	for _, e := range all {
		if !shows(e) {
			continue
		}
		if one != nil {
			return nil
		}
		one = e
	}
	return one
}

// continues reports whether the prompt of e is that of the call before it, then what that
// one sampled, then something.
func continues(before *joining, e *sighting) bool {
	head := before.known.prompt
	return e.prompt.len() > head.len()+len(before.own.Output) && e.prompt.begins(head) && e.prompt.has(head.len(), before.own.Output)
}

// alone reports whether nobody else had the prompt of a call that is known. If others had
// it, as agents of one file have, what begins with it may be theirs. They may have had it
// earlier, by as much as a rollout takes.
func (j *join) alone(c *joining) bool {
	w := c.span
	if !w.from.IsZero() {
		w.from = w.from.Add(-j.x.cfg.MaxAge / 2)
	}
	w.to = time.Time{}
	return len(j.x.byPrompt[c.known.digest]) == 1 && j.x.complete(w, -1, c.known)
}

// asked is the prompt that the server had sent.
func asked(e *sighting) prompt {
	if e.asked.known() {
		return e.asked
	}
	return e.prompt
}

// longer reports whether p begins with head and goes on.
func (p prompt) longer(head prompt) bool { return p.len() > head.len() && p.begins(head) }
