package session

import (
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
)

// A chain is one conversation.
type chain struct {
	kind   tokenize.ChainKind
	number int32
	calls  []*call // in the order of their requests
	from   *call   // the call from which the chain forked, or nil
	last   *call   // the last call that was not dropped, or the last call if all were dropped
}

func (x *chain) first() *call { return x.calls[0] }

func (x *chain) add(c *call) {
	c.chain = x
	x.calls = append(x.calls, c)
	if x.last == nil || x.last.dropped() || !c.dropped() {
		x.last = c
	}
}

// findChains puts every call into a chain, in the order of the requests.
func (b *builder) findChains() {
	b.findReplies()
	replaces := map[*call]*call{} // the first dropped call whose request a call repeats
	for _, c := range b.calls {
		d := c.repeat
		for d != nil && !answered(d.Call) {
			d = d.repeat
		}
		if d != nil && c.dropped() && replaces[d] == nil {
			replaces[d] = c
		}
	}
	for _, c := range b.calls {
		var x *chain
		switch p := c.parent; {
		case c.replyTo != nil:
			x = c.replyTo.chain
		case p != nil && (c.dropped() || p.next() == c):
			x = p.chain
		case p != nil:
			x = &chain{from: p}
		case replaces[c] != nil:
			x = replaces[c].chain
		default:
			x = b.rewritten(c)
		}
		if x == nil {
			x = &chain{}
		}
		if len(x.calls) == 0 {
			b.chains = append(b.chains, x)
		}
		x.add(c)
	}
}

// findReplies sets call.replyTo and call.until.
func (b *builder) findReplies() {
	for _, c := range b.calls {
		for d := c.repeat; c.rejected() && d != nil; d = d.repeat {
			if !answered(d.Call) {
				continue
			}
			if d.replyTo = c; !d.dropped() {
				break
			}
		}
	}
	for _, c := range slices.Backward(b.calls) {
		c.until = max(c.until, c.at)
		for _, d := range []*call{c.parent, c.replyTo} {
			if d != nil {
				d.until = max(d.until, c.until)
			}
		}
	}
}

// next returns the call that continues c in the same chain, or nil. A request that adds to the
// tokens of c comes first, then the request whose conversation lasts longest: a harness can ask for a
// summary, drop it and continue from c. Requests to which the harness did not return, requests of the
// harness about the conversation, and replies to another answer do not continue c in the chain.
func (c *call) next() (next *call) {
	for _, d := range c.children {
		switch {
		case d.dropped() || d.aside() || d.replyTo != nil:
		case next == nil, d.exact && !next.exact, d.exact == next.exact && d.until > next.until:
			next = d
		}
	}
	return next
}

// aside reports whether c is a request of the harness about the conversation, such as a title or a
// summary: it has no tools of the conversation, its prompt does not extend the tokens of its parent,
// and no request with tools of the conversation contains its answer.
func (c *call) aside() bool {
	if c.exact || c.tools.kin(c.parent.tools) {
		return false
	}
	for _, d := range c.readers {
		if d.tools.kin(c.parent.tools) {
			return false
		}
	}
	return true
}

// rewritten returns the chain that continues with c after the harness rewrote the history, such as
// for a compaction. It returns nil if c begins a conversation.
func (b *builder) rewritten(c *call) (best *chain) {
	bestSame := false
	for _, x := range b.chains {
		first, last := x.first(), x.last
		if last.dropped() || last.rejected() || !last.before(c) || last.next() != nil || c.tools.key != last.tools.key || c.end() == first.end() {
			continue
		}
		if x.from != nil {
			if next := x.from.next(); next != nil && last.before(next) {
				continue // the harness went back to an earlier request
			}
		}
		sameSystem := c.systemList() == last.systemList()
		sameTask := c.firstUser >= 0 && c.firstUser == first.firstUser
		switch {
		case sameTask && (sameSystem || c.lastReply >= 0):
		case sameSystem && (b.summarized(x, c) || b.aboutTask(first) && b.mentions(c, last.answer.text)):
		default:
			continue
		}
		if best == nil || sameTask && !bestSame || sameTask == bestSame && ended(best.last.Call).Before(ended(last.Call)) {
			best, bestSame = x, sameTask
		}
	}
	return best
}

// summarized reports whether the harness made a summary between the last answer of x and the
// request c: there is a call between them that has no tools of x, and x is unfinished or c contains
// the text of that call.
func (b *builder) summarized(x *chain, c *call) bool {
	const most = 64 // the number of calls between them that are considered
	last := x.last
	for i := c.at - 1; i > max(last.at, c.at-1-most); i-- {
		d := b.calls[i]
		if d.tools.kin(last.tools) && d.tools.key != 0 || d.chain == x || !last.before(d) || !d.before(c) {
			continue
		}
		if last.answer.called || last.Finish == tokenize.FinishLength {
			return true
		}
		if b.mentions(c, d.answer.text) {
			return true
		}
	}
	return false
}

// mentions reports whether a message of c's request contains the text.
func (b *builder) mentions(c *call, text string) bool {
	const short = 32 // a shorter text can be in a message by accident
	if len(text) < short {
		return false
	}
	for _, i := range c.Messages {
		if strings.Contains(b.message(i).text, text) {
			return true
		}
	}
	return false
}
