package session

import (
	"slices"

	"github.com/rollout-rl/rollout/tokenize"
)

// A chain is one conversation.
type chain struct {
	kind   tokenize.ChainKind
	other  bool // its model is not the model of the main chain
	number int32
	calls  []*call // in the order of their requests
	from   *call   // the call from which the chain forked, or nil
	last   *call   // the last call that was not dropped, or the last call if all were dropped
	linked bool    // it can have a start, and all of its calls belong to one conversation
	starts []*call // the candidates for start
	start  *call   // the call that started the chain of a subagent, or nil if it is not proven
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
	b.skipModels()
	b.findReplies()
	for _, c := range b.calls {
		c.setNext()
	}
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
	ends := newChainEnds(b)
	for _, c := range b.calls {
		var x *chain
		switch p := c.parent; {
		case c.replyTo != nil && c.replyTo.model == c.model:
			x = c.replyTo.chain
		case p != nil && p.model == c.model && (c.dropped() || p.next == c):
			x = p.chain
		case p != nil:
			x = &chain{from: p}
		case replaces[c] != nil && replaces[c].model == c.model:
			x = replaces[c].chain
		default:
			if end := ends.rewritten(c); end != nil {
				x = end.chain
				b.continued(end, c)
			}
		}
		if x == nil {
			x = &chain{}
		}
		if len(x.calls) == 0 {
			b.chains = append(b.chains, x)
		}
		x.add(c)
		ends.add(c)
	}
}

// skipModels makes each call continue the latest call of its own model in its conversation, because a
// chain has one model. If there is none, the parent stays, and the call begins a chain.
func (b *builder) skipModels() {
	for _, c := range slices.Backward(b.calls) { // the earlier calls still have their parents
		p := c.parent
		for p != nil && p.model != c.model {
			p = p.parent
		}
		if p != nil && p != c.parent {
			c.parent, c.exact = p, p.seq.extends(&c.seq)
			p.children = append(p.children, c)
		}
	}
}

// findReplies sets call.replyTo and call.latest.
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
		c.latest = max(c.latest, c.index)
		for _, d := range []*call{c.parent, c.replyTo} {
			if d != nil {
				d.latest = max(d.latest, c.latest)
			}
		}
	}
}

// setNext finds the call that continues c in the same chain. A request that adds to the tokens of c
// comes first, then the request whose conversation lasts longest: a harness can ask for a summary,
// drop it and continue from c. Requests to which the harness did not return, auxiliary requests, replies
// to another answer, and requests to another model do not continue c in the chain.
func (c *call) setNext() {
	for _, d := range c.children {
		switch {
		case d.dropped() || d.auxiliary() || d.replyTo != nil || d.model != c.model:
		case c.next == nil, d.exact && !c.next.exact, d.exact == c.next.exact && d.latest > c.next.latest:
			c.next = d
		}
	}
}

// auxiliary reports whether c is a request of the harness about the conversation of its parent, such
// as a title or a summary: it has no tools of the conversation, its prompt does not extend the tokens
// of its parent, and no request with tools of the conversation contains its answer.
func (c *call) auxiliary() bool {
	tools := c.parent.tools
	return !c.exact && !c.tools.overlaps(tools) && !slices.ContainsFunc(c.readers, func(d *call) bool { return d.tools.overlaps(tools) })
}
