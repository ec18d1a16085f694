package session

// findParents finds for each call the earlier call that it continues. It processes the requests in
// their order. A request that failed continues no call, but it proves which answers the harness read.
func (b *builder) findParents() {
	for _, c := range b.requests {
		if !answered(c.Call) {
			b.markRead(c)
			continue
		}
		b.findParent(c)
		if c.parent != nil {
			c.parent.children = append(c.parent.children, c)
			c.parent.readers = append(c.parent.readers, c)
		}
		b.markRead(c)
		b.index(c)
	}
}

// index makes c a candidate for the calls after it.
func (b *builder) index(c *call) {
	b.byEnd[c.end()] = append(b.byEnd[c.end()], c)
	if c.answer.isAnswer() {
		b.byAnswer[c.said] = append(b.byAnswer[c.said], c)
	}
	if n := len(c.seq.sums); len(c.Prompt) > 0 && len(c.Output) > 0 {
		key := blocks{n: n}
		if n > 0 {
			key.sum = c.seq.sums[n-1]
		}
		b.byBlocks[key] = append(b.byBlocks[key], c)
	}
}

// A continuation is a candidate for a call's parent.
type continuation struct {
	from   *call
	common int  // the number of tokens that the prompt shares with the earlier sequence
	exact  bool // the prompt begins with the whole sequence
	same   bool // the request contains the answer as a message
	equal  bool // the message also has the text and the arguments of the answer
}

func newContinuation(c, from *call, m *message, same bool) continuation {
	k := continuation{from: from, common: from.seq.common(&c.seq), same: same, equal: same && m.content == from.answer.content}
	k.exact = len(from.Prompt) > 0 && len(from.Output) > 0 && k.common == from.seq.len() && from.seq.extends(&c.seq)
	return k
}

// better reports whether k is better evidence than l for being the parent of c.
func (k *continuation) better(l *continuation, c *call) bool {
	switch {
	case l.from == nil:
		return true
	case (k.same || k.exact) != (l.same || l.exact): // otherwise the answer was changed
		return k.same || k.exact
	case k.equal != l.equal:
		return k.equal
	case k.common != l.common:
		return k.common > l.common
	case k.same != l.same:
		return k.same
	case k.from.before(c) != l.from.before(c):
		return k.from.before(c)
	case (len(k.from.children) == 0) != (len(l.from.children) == 0):
		return len(k.from.children) == 0
	}
	return k.from.Number > l.from.Number
}

// findParent sets c.parent, c.parentAt and c.exact. The candidates are the calls whose answer is at the last
// possible position among the messages. If the prompt begins with more tokens of another call, that
// call is the parent.
func (b *builder) findParent(c *call) {
	var best continuation
	at := c.lastReply
	for ; at > 0; at-- {
		if best = b.answerAt(c, at, true); best.from != nil {
			break
		}
	}
	if e := b.longest(c); e != nil && (best.from == nil || e.seq.len() > best.common) && !b.coincides(c, e) {
		best, at = continuation{from: e, exact: true}, len(e.Messages)
	}
	c.parent, c.parentAt, c.exact = best.from, at, best.exact
}

// coincides reports whether c's request contains the answer of another call in the place of e's
// answer. Then the tokens are the same only because both answers begin with the same tokens.
func (b *builder) coincides(c, e *call) bool {
	n := len(e.Messages)
	if n >= len(c.Messages) || c.lists[n] != e.end() {
		return false
	}
	k := b.answerAt(c, n, false)
	return k.from != nil && k.from != e
}

// answerAt returns the call whose answer is the message at position p of c's request. If edited is
// true, it can also return a call whose request consists of the messages before p, because the
// harness could have changed the answer.
func (b *builder) answerAt(c *call, p int, edited bool) (best continuation) {
	text := c.Messages[p]
	m := b.message(text)
	if m.role != "assistant" {
		return best
	}
	consider := func(d *call, same bool) {
		if k := newContinuation(c, d, m, same); k.better(&best, c) {
			best = k
		}
	}
	if m.isAnswer() {
		for _, d := range b.byAnswer[b.number[text]] {
			if b.holds(c, p, d) {
				consider(d, true)
			}
		}
	}
	if edited {
		for _, d := range b.byEnd[c.lists[p]] {
			if d.said != b.number[text] { // otherwise it is in byAnswer
				consider(d, false)
			}
		}
	}
	return best
}

// holds reports whether the message at position p of c's request, which is the same as d's answer,
// comes from d. Usually the messages of d are before it. If the harness rewrote them, the two
// requests must have enough else in common.
func (b *builder) holds(c *call, p int, d *call) bool {
	n := len(d.Messages)
	sameTools := c.tools.key == d.tools.key
	sameSystem := c.systemList() == d.systemList()
	switch {
	case n <= p && c.lists[n] == d.end():
		return true
	case d.answer.ids:
		return sameTools && c.tools.key != 0 || sameSystem && c.tools.kin(d.tools)
	}
	return sameTools && sameSystem && c.system > 0
}

// longest returns the call with the most tokens among the calls whose prompt and output are the
// beginning of c's prompt, or nil.
func (b *builder) longest(c *call) (best *call) {
	for n := len(c.Prompt) / blockTokens; n >= 0 && best == nil; n-- {
		key := blocks{n: n}
		if n > 0 {
			key.sum = c.seq.sums[n-1]
		}
		for _, d := range b.byBlocks[key] {
			if (best == nil || d.seq.len() >= best.seq.len()) && d.seq.common(&c.seq) == d.seq.len() && d.seq.extends(&c.seq) {
				best = d
			}
		}
	}
	return best
}

// markRead makes c a reader of the calls whose answers are among the messages that c adds to its
// parent's.
func (b *builder) markRead(c *call) {
	from := 0
	if d := c.parent; d != nil && len(d.Messages) <= len(c.Messages) && c.lists[len(d.Messages)] == d.end() {
		from = len(d.Messages)
	}
	for p := from; p <= c.lastReply; p++ {
		if c.parent != nil && p == c.parentAt {
			continue // it is a reader of its parent already
		}
		if k := b.answerAt(c, p, false); k.from != nil {
			k.from.readers = append(k.from.readers, c)
		}
	}
}
