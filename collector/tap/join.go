package tap

import (
	"context"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Rollout describes a rollout whose calls Join finds.
type Rollout struct {
	// ID identifies the rollout. A call is never assigned to two rollouts.
	ID    string
	Sends []Send
	// Foreign, if set, reports whether a prompt belongs to another rollout. head returns the first
	// n ids of the prompt, or all if it has fewer.
	Foreign func(head func(n int) []int32) bool
}

// A Send is one request to the server, and the calls that its answer shows, in order.
type Send struct {
	// From and To are the start and the end of the send by this machine's clock. A zero time is
	// unknown.
	From, To time.Time
	// PromptTokens is the server's sum of the calls' prompt tokens, or -1 if unknown.
	PromptTokens int64
	// Summaries is the number of times that the server compacted the history in the send: it
	// summarized the history and started a new history. If there are summaries, neighboring calls
	// prove nothing about a call.
	Summaries int
	Calls     []Sampled
}

// A Sampled is a call as the answer shows it.
type Sampled struct {
	Output   []int32
	Logprobs []float32 // NaN: the server returned none
}

// A Match is the result of Join for one call.
type Match struct {
	// Call is the call that the tap saw, or nil if Refusal is set. Its prompts are copies. Output
	// and Logprobs are not set. If several calls match and differ in a field, the field is unknown:
	// Finish and Version are empty, Sampling fields are nil.
	Call    *Call
	Refusal Refusal
	// Unshown counts other calls that no answer shows: calls with the same prompt and, if this is
	// the first call of its send, the send's summaries. Each is counted once, and only if it is
	// proven to belong to the rollout.
	Unshown tokenize.Unshown
}

// A Refusal is the reason why a call was not found.
type Refusal uint8

// RefusedNone is the Refusal of a call that was found.
const (
	RefusedNone    Refusal = iota
	RefusedUnseen          // no tap saw such a call during its send
	RefusedLike            // several prompts are possible, and no evidence decides between them
	RefusedWeak            // one call matches, which proves too little, and other calls can be missing
	RefusedCount           // the prompts of its send do not add up to the server's count
	RefusedForeign         // the prompt names another agent
	RefusedTaken           // every matching call belongs to another rollout
	RefusedEvicted         // the prompt of the call is no longer in memory
	RefusedUnread          // the tap saw the call but not its prompt
)

var refusals = [...]struct{ word, phrase string }{
	{"", ""},
	{"unseen", "no tap saw the call during its send"},
	{"alike", "several prompts are possible"},
	{"weak", "only one call matches, which is too little proof because other calls can be missing"},
	{"count", "the prompts of its send do not add up to the server's count"},
	{"foreign", "the prompt of the matching call belongs to another agent"},
	{"taken", "every matching call belongs to another rollout"},
	{"evicted", "the prompt of the call is no longer in memory"},
	{"unread", "the tap saw the call but not its prompt"},
}

// Refusals returns all refusals except RefusedNone.
func Refusals() []Refusal {
	var all []Refusal
	for r := range refusals[1:] {
		all = append(all, Refusal(r+1)) //nolint:gosec // there are few
	}
	return all
}

// String returns the refusal as a phrase for messages.
func (r Refusal) String() string { return refusals[r].phrase }

// Word returns the key of r in counts, or "" for RefusedNone.
func (r Refusal) Word() string { return refusals[r].word }

// Join finds the calls of a rollout. It returns one Match for each call, over all sends. A call is
// found only if exactly one prompt is possible for it:
//
//   - Only a call seen during the send matches, with the same sampled ids and the same bits of
//     every log-probability.
//   - If all matching calls have one prompt, that is the prompt, unless another call can be
//     missing. No call can be missing if every call of that time was seen. No other prompt fits if
//     enough tokens have log-probabilities of which the engine was not sure.
//   - If they have several prompts, and every call of that time was seen, the neighbors in the
//     rollout decide. Exactly one prompt must begin with the prompt and the output of the previous
//     call, or be the beginning of the next call's prompt, or begin with a previous prompt that no
//     other call has. If the neighbors disagree, nothing is decided. If the rollout has as many
//     such calls as there are prompts, and each prompt begins with a shorter one, the calls get the
//     prompts by length.
//   - If all calls of a send are found, their prompts add up to the server's count.
//   - A call is never assigned twice.
//
// Join waits until the taps have delivered every call up to the end of the rollout. It waits for a
// tap that is restarting, but at most IndexConfig.Patience while no calls arrive. If the wait is
// cut short, Join finds fewer calls, but the calls that it finds are as certain.
func (x *Index) Join(ctx context.Context, r *Rollout) []Match {
	all := x.await(ctx, r.over())
	x.mu.Lock()
	defer x.mu.Unlock()
	j := x.newJoin(r, all)
	j.resolve()
	return j.claim()
}

// A join is one attempt to find the calls of a rollout. The index is locked.
type join struct {
	x *Index
	r *Rollout
	// delivered reports whether the feeds have delivered everything up to the rollout's end.
	delivered bool
	calls     []joining
	// counted has the calls counted as unshown in this join, by the address of their unshown field.
	counted map[*string]bool
}

type joining struct {
	send int
	own  Sampled
	span span
	like []*sighting // candidates, by fingerprint and time
	// options has one candidate for each different prompt of like.
	options []*sighting
	tells   bool
	known   *sighting // the chosen option; nil: undecided
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

// mostForeign bounds how many prompts are passed to Rollout.Foreign for one call, at about 10 µs
// each. A fleet of agents that answer with one word can have that many equal calls.
const mostForeign = 1000

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
		c.options = nil // c could be this call, whose prompt is unknown
		return
	}
	if len(c.options) == 1 {
		c.refused = RefusedWeak
	}
}

// resolve decides every call. A decision that other decisions finally contradict must not count as
// evidence for them. So resolve refuses such a call and decides all others again.
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

// refuteNeighbours refuses calls that their neighbors contradict, and reports whether it did.
func (j *join) refuteNeighbours() (refuted bool) {
	for k := range j.calls {
		if c := &j.calls[k]; c.known != nil && j.decide(k) != c.known {
			c.options, c.refused, refuted = nil, RefusedLike, true
		}
	}
	return refuted
}

// refuteCounts refuses the calls of sends whose prompts do not add up to the server's count. It
// reports whether it refused any.
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
		// An unknown prompt has at least one token.
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

// decide returns the sighting of call k, or nil if it is undecided.
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
		return nil // the right call can be missing, or the history was rewritten
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

// rung decides call k if the model repeats itself in a loop. The rollout must have as many such
// calls as there are prompts for them, and each prompt must begin with a shorter one. Then the
// calls get the prompts by length. Otherwise rung returns nil.
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

// neighbour returns call k if it is known and can serve as evidence, otherwise nil.
func (j *join) neighbour(k int) *joining {
	if k < 0 || k >= len(j.calls) || j.calls[k].known == nil || j.rewritten(k) {
		return nil
	}
	return &j.calls[k]
}

func (j *join) rewritten(k int) bool { return j.r.Sends[j.calls[k].send].Summaries > 0 }

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

// continues reports whether e's prompt is before's prompt and output, then at least one token.
func continues(before *joining, e *sighting) bool {
	head := before.known.prompt
	return e.prompt.len() > head.len()+len(before.own.Output) && e.prompt.begins(head) && e.prompt.has(head.len(), before.own.Output)
}

// alone reports whether no other call had the prompt of a known call. If others had it, such as
// agents of one agent file, prompts that begin with it can be theirs. They can have had it earlier,
// by as much as a rollout takes.
func (j *join) alone(c *joining) bool {
	w := c.span
	if !w.from.IsZero() {
		w.from = w.from.Add(-j.x.cfg.MaxAge / 2)
	}
	w.to = time.Time{}
	return len(j.x.byPrompt[c.known.digest]) == 1 && j.x.complete(w, -1, c.known)
}

func asked(e *sighting) prompt {
	if e.asked.known() {
		return e.asked
	}
	return e.prompt
}

// longer reports whether p begins with head and has more tokens.
func (p prompt) longer(head prompt) bool { return p.len() > head.len() && p.begins(head) }
