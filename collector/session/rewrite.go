package session

import (
	"cmp"
	"slices"
	"sort"

	"github.com/rollout-rl/rollout/tokenize"
)

// chainEnds finds the chain that continues after the harness rewrote the history, such as for a
// compaction. An end is the last call of a chain that no call continues.
type chainEnds struct {
	b         *builder
	byTask    map[endKey][]*call // by the first user message of the chain; sorted by call.ended
	bySystem  map[endKey][]*call // by the list of system messages; sorted by call.ended
	summaries []*call            // the calls without tools, sorted by call.ended
	began     []int64            // the latest call.began of summaries[:i+1]
}

// An endKey is what an end has in common with the request that continues its chain.
type endKey struct {
	model   int32
	tools   int32
	message int32 // or a list of messages
	open    bool  // the answer is unfinished: it calls tools, or the token limit stopped it, and no other model continued
}

func newChainEnds(b *builder) *chainEnds {
	e := &chainEnds{b: b, byTask: map[endKey][]*call{}, bySystem: map[endKey][]*call{}}
	for _, c := range b.calls {
		if c.tools.key == 0 {
			e.summaries = append(e.summaries, c)
		}
	}
	slices.SortStableFunc(e.summaries, func(x, y *call) int { return cmp.Compare(x.ended, y.ended) })
	for i, c := range e.summaries {
		e.began = append(e.began, c.began)
		if i > 0 {
			e.began[i] = max(c.began, e.began[i-1])
		}
	}
	return e
}

// add adds the call c of a chain if no call continues it.
func (e *chainEnds) add(c *call) {
	if c.dropped() || c.rejected() || c.next != nil {
		return
	}
	insert := func(ends map[endKey][]*call, key endKey) {
		at := position(ends[key], c.ended)
		ends[key] = slices.Insert(ends[key], at, c)
	}
	if user := c.chain.first().firstUser; user >= 0 {
		insert(e.byTask, endKey{c.model, c.tools.key, user, false})
	}
	open := c.answer.called() || c.Finish == tokenize.FinishLength
	continued := slices.ContainsFunc(c.children, func(d *call) bool { return d.model != c.model })
	insert(e.bySystem, endKey{c.model, c.tools.key, c.systemList(), open && !continued})
}

// position returns the number of calls that ended at or before the time.
func position(calls []*call, time int64) int {
	return sort.Search(len(calls), func(i int) bool { return calls[i].ended > time })
}

// rewritten returns the end of the chain that continues with c after the harness rewrote the history.
// It returns nil if c begins a conversation. A chain with the same first user message comes first, then
// the chain that ended last.
func (e *chainEnds) rewritten(c *call) (best *call) {
	if c.firstUser >= 0 {
		if d := latest(e.byTask, endKey{c.model, c.tools.key, c.firstUser, false}, c, c.began); d != nil {
			return d
		}
	}
	consider := func(d *call) {
		if d != nil && (best == nil || d.ended > best.ended) {
			best = d
		}
	}
	open, closed := endKey{c.model, c.tools.key, c.systemList(), true}, endKey{c.model, c.tools.key, c.systemList(), false}
	if i := position(e.summaries, c.began); i > 0 { // a summary of an unfinished chain
		consider(latest(e.bySystem, open, c, e.began[i-1]))
	}
	for _, i := range c.Messages {
		for _, q := range e.b.quotes[i] {
			for _, d := range q.calls[:position(q.calls, c.began)] {
				if d.tools.key == 0 { // a summary of any chain
					consider(latest(e.bySystem, closed, c, d.began))
					consider(latest(e.bySystem, open, c, d.began))
				}
				// a summary in the conversation about the task, possibly by another model
				for d != nil && d.model != c.model {
					d = d.parent
				}
				if d != nil && d.tools.key == c.tools.key && d.systemList() == c.systemList() && canContinue(d, c) && e.b.aboutTask(d.chain.first()) {
					consider(d)
				}
			}
		}
	}
	return best
}

// latest returns the last of the ends that ended at or before the time, and whose chain can continue
// with c. If c contains no answer, it must have the same system messages. latest removes the ends of
// chains that have continued.
func latest(ends map[endKey][]*call, key endKey, c *call, time int64) *call {
	for i := position(ends[key], time) - 1; i >= 0; i-- {
		d := ends[key][i]
		if d.chain.last != d {
			ends[key] = slices.Delete(ends[key], i, i+1)
		} else if (c.lastReply >= 0 || c.systemList() == d.systemList()) && canContinue(d, c) {
			return d
		}
	}
	return nil
}

// canContinue reports whether the chain of d can continue with c: d is its last call and had ended,
// and c does not begin the same conversation again.
func canContinue(d, c *call) bool {
	x := d.chain
	if x == nil || x.last != d || d.next != nil || d.dropped() || d.rejected() || !d.before(c) || c.end() == x.first().end() {
		return false
	}
	// Otherwise the harness went back to an earlier request.
	return x.from == nil || x.from.next == nil || !d.before(x.from.next)
}
