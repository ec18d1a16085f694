package tap

import (
	"slices"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// This file names the calls of a rollout that no answer shows.
//
//	kind      which call                            why it is one of the rollout
//	retry     answered, and nobody claimed it       its prompt is that of a claimed call of the
//	failed    the engine answered with an error     rollout, it came in the time of that call's send,
//	cut       its answer broke off                  and the prompt is shown to be the rollout's alone
//	summary   in another dialect than the turns,    the server says that it summarized the history
//	          as a server asks for summaries        in that send, and how often
//
// A prompt is the rollout's alone if it names its agent, or if it begins with the prompt and the
// output of an earlier call of the rollout, and no other call had these. Agents of one file have
// a first prompt in common, and all prompts where the engine answers them alike: a retry of those
// is nobody's. IndexStats.Retries counts it.
//
// A call that was counted for one rollout is not counted for another.

// An aside is a call that was answered and whose tokens no dialect could read.
type aside struct {
	began, ended time.Time
	dialect      string
	unshown      string // the rollout for which it is counted; empty: none
}

// unshown counts the calls beside call k that no answer shows: those with its prompt and, with the
// first call of a send, the summaries of the send. found says that call k was found.
func (j *join) unshown(k int, found bool) tokenize.Unshown {
	c := &j.calls[k]
	n := counting{j: j, span: c.span}
	if k == 0 || j.calls[k-1].send != c.send {
		n.summaries(j.r.Sends[c.send].Summaries, j.dialect())
	}
	if found {
		n.repeats(k, c.known)
	}
	for word, more := range n.fresh.Each() {
		if more > 0 {
			j.x.unshown[word] += int64(more)
		}
	}
	return n.all
}

// A counting counts calls of a send.
type counting struct {
	j     *join
	span  span
	all   tokenize.Unshown
	fresh tokenize.Unshown // those that were not counted in an earlier Join
}

// repeats counts the calls that have the prompt of call k.
func (n *counting) repeats(k int, known *sighting) {
	x := n.j.x
	same, broken := x.byPrompt[known.digest], x.broken[known.digest]
	if len(same) < 2 && len(broken) == 0 || !n.j.owns(k) {
		return
	}
	for _, e := range same {
		if e.owner == (owner{}) && !n.j.mayShow(e) {
			n.add(tokenize.Unshown{Retries: 1}, &e.unshown, e.call.Began, e.call.Ended)
		}
	}
	for _, e := range broken {
		if e.call.Cut {
			n.add(tokenize.Unshown{Cut: 1}, &e.unshown, e.call.Began, e.call.Ended)
		} else {
			n.add(tokenize.Unshown{Failed: 1}, &e.unshown, e.call.Began, e.call.Ended)
		}
	}
}

// summaries counts as many summaries of the send as there are, if the tap saw so many.
func (n *counting) summaries(most int, turns string) {
	x := n.j.x
	if most == 0 || turns == "" {
		return
	}
	for i := range x.asides {
		if a := &x.asides[i]; a.dialect != turns && int(n.all.Summaries) < most {
			n.add(tokenize.Unshown{Summaries: 1}, &a.unshown, a.began, a.ended)
		}
	}
	for _, e := range x.all { // a tap may be told to ask for the tokens of summaries as well
		if e.call.Dialect != turns && e.owner == (owner{}) && !e.broken && int(n.all.Summaries) < most {
			n.add(tokenize.Unshown{Summaries: 1}, &e.unshown, e.call.Began, e.call.Ended)
		}
	}
}

// add counts a call of this time, if it is not counted for another rollout, nor was before in
// this join. by names the rollout for which it is counted.
func (n *counting) add(one tokenize.Unshown, by *string, began, ended time.Time) {
	j := n.j
	if *by != "" && *by != j.r.ID || !j.x.within(n.span, began, ended) || j.counted[by] {
		return
	}
	if *by == "" {
		*by = j.r.ID
		n.fresh = n.fresh.Plus(one)
	}
	if j.counted == nil {
		j.counted = make(map[*string]bool)
	}
	j.counted[by] = true
	n.all = n.all.Plus(one)
}

// mayShow reports whether e may be a call that the answers show and that was not found.
func (j *join) mayShow(e *sighting) bool {
	return slices.ContainsFunc(j.calls, func(c joining) bool { return c.known == nil && slices.Contains(c.like, e) })
}

// dialect is that of the calls that were found; empty: there is none, or they differ.
func (j *join) dialect() (one string) {
	for k := range j.calls {
		switch known := j.calls[k].known; {
		case known == nil:
		case one != "" && one != known.call.Dialect:
			return ""
		default:
			one = known.call.Dialect
		}
	}
	return one
}

// only reports whether no other call had the prompt and gave the output of a call that is known.
func (j *join) only(c *joining) bool {
	if !j.delivered || !j.x.complete(c.span, len(c.own.Output), c.known) {
		return false
	}
	return !slices.ContainsFunc(j.x.byMark[c.known.mark], func(e *sighting) bool { return e != c.known && e.digest == c.known.digest })
}

// owns reports whether the prompt of call k, which is known, is shown to be no other rollout's.
func (j *join) owns(k int) bool {
	known := j.calls[k].known
	if !known.prompt.known() {
		return false
	}
	if j.r.Foreign != nil && !j.r.Foreign(known.prompt.head) {
		return true
	}
	for i := range k {
		if before := j.neighbour(i); before != nil && before.tells && before.known.prompt.known() && j.only(before) && continues(before, known) {
			return true
		}
	}
	return false
}
