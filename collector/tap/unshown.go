package tap

import (
	"slices"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// The code in this file counts the calls of a rollout that do not appear in the server's answers.
//
//	kind      which call                            why it belongs to the rollout
//	retry     answered but unclaimed                its prompt is the prompt of a claimed call in the
//	failed    the engine answered with an error     rollout, it came during that call's send, and
//	cut       its answer was cut off                the prompt belongs to the rollout alone
//	summary   in another dialect than the turns,    the server reports that it summarized the history
//	          as servers request summaries          in that send, and how often
//
// A prompt provably belongs to the rollout alone if it names the rollout's agent. The same is true
// if the prompt begins with the prompt and output of an earlier call of the rollout, and no other
// call has that prompt and output. Agents from one agent file have the same first prompt. As long
// as these agents receive the same answers from the engine, their later prompts are equal too. A
// retry with such a prompt cannot be assigned to a rollout, so only IndexStats.Retries counts the
// retry.
//
// A call that was counted for one rollout is not counted for another.

// An aside is an answered call whose output tokens no dialect could parse.
type aside struct {
	began, ended time.Time
	dialect      string
	unshown      string // the rollout that counts the call, or empty
}

// unshown returns Match.Unshown for call k. The parameter found is true if call k was found.
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

// A counting counts the unshown calls during one send.
type counting struct {
	j     *join
	span  span
	all   tokenize.Unshown
	fresh tokenize.Unshown // calls that earlier calls to Join have not counted
}

// If the prompt of call k belongs to the rollout alone, repeats counts the other calls with this
// prompt.
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

// summaries counts the calls in which the server requested summaries during the send. most is the
// maximum number of calls to count. turns is the dialect of the rollout's turns.
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
	for _, e := range x.all { // summary calls whose tokens a tap has recorded are in x.all
		if e.call.Dialect != turns && e.owner == (owner{}) && !e.broken && int(n.all.Summaries) < most {
			n.add(tokenize.Unshown{Summaries: 1}, &e.unshown, e.call.Began, e.call.Ended)
		}
	}
}

// add counts a call if it was made during the send, is not counted for another rollout, and has not
// yet been counted in this join. *by is the id of the rollout that counts the call.
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

// mayShow reports whether e might be one of the rollout's turns for which no call was found. Such a
// call must not be counted.
func (j *join) mayShow(e *sighting) bool {
	return slices.ContainsFunc(j.calls, func(c joining) bool { return c.known == nil && slices.Contains(c.like, e) })
}

// dialect returns the dialect of the calls that were found. It returns "" if no calls were found or
// if their dialects differ.
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

// only reports whether c is the only call with its prompt and output. The match of c must have been
// decided.
func (j *join) only(c *joining) bool {
	if !j.delivered || !j.x.complete(c.span, len(c.own.Output), c.known) {
		return false
	}
	return !slices.ContainsFunc(j.x.byMark[c.known.mark], func(e *sighting) bool { return e != c.known && e.digest == c.known.digest })
}

// owns reports whether the prompt of call k provably belongs to the rollout alone. The match of
// call k must have been decided.
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
