package tap

import (
	"context"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Rollout describes the rollout whose calls Join must find.
type Rollout struct {
	// ID identifies the rollout. Join never assigns the same call to two rollouts.
	ID    string
	Sends []Send
	// Foreign reports whether a prompt belongs to another rollout. The function head returns the
	// first n ids of the prompt, or all ids if the prompt has fewer than n. Foreign can be nil.
	Foreign func(head func(n int) []int32) bool
}

// A Send is one request to the server. Calls lists the calls that the answer shows, in order.
type Send struct {
	// From and To are the start and the end of the send, by this machine's clock. A zero time is
	// unknown.
	From, To time.Time
	// PromptTokens is the total number of prompt tokens in the send's calls, as reported by the
	// server, or -1 if unknown.
	PromptTokens int64
	// Summaries is the number of times that the server summarized the history during the send and
	// started a new history from the summary. If Summaries is not 0, the calls of the send are not
	// evidence for their neighbors, and the neighbors are not evidence for these calls.
	Summaries int
	Calls     []Sampled
}

// A Sampled is a call as the server's answer shows it.
type Sampled struct {
	Output   []int32
	Logprobs []float32 // NaN means that the server returned no value
}

// A Match is the result of Join for one call.
type Match struct {
	// Call is the call that the tap saw, or nil if Refusal is set. The prompts in Call are copies.
	// The fields Output and Logprobs in Call are not set. If several calls match and differ in a
	// field, the field has the value that means unknown.
	Call    *Call
	Refusal Refusal
	// Unshown counts related calls that no answer shows. Related calls are calls with the same
	// prompt and, for the first call of a send, the calls for the send's summaries. A call is
	// counted only once, and only if it provably belongs to the rollout.
	Unshown tokenize.Unshown
}

// A Refusal is the reason why Join did not find a call.
type Refusal uint8

// RefusedNone is the Refusal for a call that was found.
const (
	RefusedNone    Refusal = iota
	RefusedUnseen          // no tap saw the call during its send
	RefusedLike            // several prompts are possible, and the evidence does not select any of them
	RefusedWeak            // only one prompt matches, but the right prompt might be missing from the index
	RefusedCount           // the prompt tokens in the call's send do not add up to the server's count
	RefusedForeign         // the prompt of the matching call belongs to another rollout
	RefusedTaken           // every matching call belongs to another rollout
	RefusedEvicted         // the prompt of the call is no longer in memory
	RefusedUnread          // the tap saw the call but not the prompt
)

var refusals = [...]struct{ word, phrase string }{
	{"", ""},
	{"unseen", "no tap saw the call during its send"},
	{"alike", "several prompts are possible"},
	{"weak", "only one call matches, which is not enough proof because other calls might be missing"},
	{"count", "the prompt tokens of its send do not add up to the server's count"},
	{"foreign", "the prompt of the matching call belongs to another agent"},
	{"taken", "every matching call belongs to another rollout"},
	{"evicted", "the prompt of the call is no longer in memory"},
	{"unread", "the tap saw the call but not its prompt"},
}

// Refusals returns all refusals except RefusedNone.
func Refusals() []Refusal {
	var all []Refusal
	for r := range refusals[1:] {
		all = append(all, Refusal(r+1)) //nolint:gosec // there are few refusals
	}
	return all
}

// String returns the reason as a phrase for messages.
func (r Refusal) String() string { return refusals[r].phrase }

// Word returns the reason as a key for counts. It returns "" for RefusedNone.
func (r Refusal) Word() string { return refusals[r].word }

// Join finds the calls of a rollout. It returns one Match for each call in r.Sends, in order. It
// finds a call only if exactly one prompt is possible for the call, according to these rules:
//
//   - A call matches if it was seen during the send and has the same sampled ids and the same bits
//     of every log-probability.
//   - If all matching calls have the same prompt, Join chooses this prompt under one of two
//     conditions. Either the taps saw every call of that time, or the engine was unsure of so many
//     tokens that no other prompt can produce the same log-probabilities.
//   - If the matching calls have different prompts and the taps saw every call of that time, the
//     neighbors in the rollout decide. Join chooses a prompt if it is the only prompt that begins
//     with the prompt and the output of the previous call. Join also chooses a prompt if it is the
//     only prompt with which the next call's prompt begins. If no other call has the previous
//     call's prompt, it is enough that only one prompt begins with the previous call's prompt. If
//     these rules select different prompts, Join chooses none of them.
//   - If the neighbors do not decide, Join can assign the prompts to the calls in order of length.
//     It does so if the rollout has as many such calls as there are prompts and if each prompt
//     begins with the next shorter prompt.
//   - The prompts that Join chooses for a send must not contradict the server's count of prompt
//     tokens.
//   - A call is never assigned twice.
//
// Join waits until the taps have delivered every call up to the end of the rollout. It also waits
// for a tap that is restarting. It stops waiting if no call arrives within IndexConfig.Patience. In
// that case, Join can find fewer calls, but each call that it finds is still certain.
func (x *Index) Join(ctx context.Context, r *Rollout) []Match {
	all := x.await(ctx, r.over())
	x.mu.Lock()
	defer x.mu.Unlock()
	j := x.newJoin(r, all)
	j.resolve()
	return j.claim()
}

// A join is one attempt to find the calls of a rollout. The index stays locked during the attempt.
type join struct {
	x *Index
	r *Rollout
	// delivered is true if the feeds have delivered every call up to the end of the rollout.
	delivered bool
	calls     []joining
	// counted contains the calls that this join has counted as unshown. The key is the address of
	// the field unshown.
	counted map[*string]bool
}

type joining struct {
	send int
	own  Sampled
	span span
	like []*sighting // the candidates, which match by fingerprint and time
	// options contains one candidate for each different prompt in the field like.
	options []*sighting
	tells   bool
	known   *sighting // the chosen option, or nil if undecided
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

// mostForeign limits the number of prompts that are passed to Rollout.Foreign for one call, because
// each prompt takes about 10 µs. If many agents give the same one-word answer, thousands of calls
// can match.
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
		c.options = nil // c might be the call in e, whose prompt is unknown
		return
	}
	if len(c.options) == 1 {
		c.refused = RefusedWeak
	}
}

// resolve decides every call. Each decision is evidence for the decisions about other calls. If the
// other decisions finally contradict the decision about a call, resolve refuses this call and
// decides all other calls again.
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

// refuteNeighbours refuses each call that is contradicted by its neighbors. It reports whether it
// refused any call.
func (j *join) refuteNeighbours() (refuted bool) {
	for k := range j.calls {
		if c := &j.calls[k]; c.known != nil && j.decide(k) != c.known {
			c.options, c.refused, refuted = nil, RefusedLike, true
		}
	}
	return refuted
}

// refuteCounts refuses all calls in a send if the prompt tokens do not add up to the server's
// count. It reports whether it refused any call.
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
		// The comparison assumes that an unknown prompt has at least one token.
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

// decide returns the option that the evidence selects for call k, or nil if the evidence is not
// sufficient.
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
		return nil // the right call might be missing, or the history was summarized
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

// rung decides call k if the model repeated the same output in a loop. The number of calls with the
// same options must be the number of options, and each prompt must begin with the next shorter
// prompt. The calls are then matched with the prompts in order of length. If these conditions do
// not hold, rung returns nil.
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

// neighbour returns call k if it exists, has been decided and can serve as evidence. Otherwise it
// returns nil.
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

// continues reports whether e continues the call in the parameter before. The prompt of e must
// begin with that call's prompt and output and have at least one more token.
func continues(before *joining, e *sighting) bool {
	head := before.known.prompt
	return e.prompt.len() > head.len()+len(before.own.Output) && e.prompt.begins(head) && e.prompt.has(head.len(), before.own.Output)
}

// alone reports whether no other call has the prompt of a decided call. Another rollout can have
// the same prompt, for example if its agent comes from the same agent file. A prompt that begins
// with this prompt can then belong to the other rollout. The other call can be earlier by the
// duration of a rollout, so alone also checks the time before the send.
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

// longer reports whether p begins with the prompt head and is longer than head.
func (p prompt) longer(head prompt) bool { return p.len() > head.len() && p.begins(head) }
