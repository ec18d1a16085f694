package session

import "slices"

// findParents finds for each request the earlier call that it continues, and the answers that it
// contains. It processes the requests in their order. A request that failed is not a child of any
// call, but it proves which answers the harness read.
func (b *builder) findParents() {
	for _, c := range b.requests {
		proved := b.findParent(c)
		if p := c.parent; p != nil {
			if answered(c.Call) {
				p.children = append(p.children, c)
			}
			switch {
			case proved:
				c.read = p
				p.readers = append(p.readers, c)
			case p.changed == nil:
				p.changed = c
			}
		}
		b.markRead(c)
		if answered(c.Call) {
			b.index(c)
		}
	}
}

// index makes c a candidate for the calls after it.
func (b *builder) index(c *call) {
	b.byEnd[c.end()] = append(b.byEnd[c.end()], c)
	if c.answer.isAnswer() {
		last := pair{b.lastMessage(c.Messages), c.answer.full}
		b.byLast[last] = append(b.byLast[last], c)
		b.texts[c.answer.text]++
		c.known = slices.ContainsFunc(c.Messages, func(i int) bool { return b.message(i).number == c.answer.number })
		sent, ok := b.sent[pair{last.list, c.answer.number}]
		c.knownHere = ok && (sent <= c.began || sent < c.ended)
		numbers := []int32{c.answer.number, c.answer.full}
		for _, n := range slices.Compact(numbers) {
			b.byAnswer[n] = append(b.byAnswer[n], c)
			b.byPlace[pair{c.end(), n}] = append(b.byPlace[pair{c.end(), n}], c)
		}
	}
	if len(c.Prompt) > 0 && len(c.Output) > 0 {
		b.byTokens[prefix{c.seq.len(), c.seq.sum}] = c
		blocks := c.seq.blocks(len(c.seq.sums))
		if b.rests[blocks] == nil {
			b.rests[blocks] = &rests{}
		}
		b.rests[blocks][c.seq.len()%blockTokens] = true
	}
}

// A continuation is a candidate for a call's parent.
type continuation struct {
	from   *call
	common int  // the number of tokens that the prompt has in common with the earlier prompt and output
	proved bool // the request contains the answer of from
}

// better reports whether k is better evidence than l for being the parent of c. Both have equally
// similar answers. again is the parent of the request that c can repeat, or nil.
func (k *continuation) better(l *continuation, c, again *call) bool {
	switch {
	case l.from == nil:
		return true
	case k.common != l.common:
		return k.common > l.common
	case (k.from.model == c.model) != (l.from.model == c.model):
		return k.from.model == c.model
	case k.from.before(c) != l.from.before(c):
		return k.from.before(c)
	case k.from.delivered() != l.from.delivered():
		return k.from.delivered()
	case (k.from == again) != (l.from == again):
		return k.from == again
	case (len(k.from.children) == 0) != (len(l.from.children) == 0):
		return len(k.from.children) == 0
	}
	return k.from.Number > l.from.Number
}

// best returns the best of the calls that fit, whose answers are equally similar. The calls are in
// the order of their requests.
func (b *builder) best(c *call, calls []*call, fits func(*call) bool) (best continuation) {
	var again *call
	if len(calls) > 1 {
		again = b.again(c)
	}
	for _, d := range slices.Backward(calls) {
		if p := best.from; p != nil && best.common == p.seq.len() && p.model == c.model && p.before(c) && p.delivered() &&
			(p == again || again == nil && len(p.children) == 0) {
			break // the later of two equal candidates
		}
		if fits == nil || fits(d) {
			k := continuation{from: d, common: d.seq.common(&c.seq)}
			if k.better(&best, c, again) {
				best = k
			}
		}
	}
	return best
}

// again returns the parent of the last request that c can repeat: it ended before and has the same
// messages and tools. The repeat continues the same answer, also if another answer is equal.
func (b *builder) again(c *call) *call {
	for _, d := range slices.Backward(b.byEnd[c.end()]) {
		if d.before(c) && d.tools.key == c.tools.key {
			return d.parent
		}
	}
	return nil
}

// findParent sets c.parent, c.parentAt and c.exact, and reports whether the request contains the
// answer of the parent. The candidates are the calls whose answer is at the last possible position
// among the messages. If the prompt begins with more tokens of another call, that call is the parent.
func (b *builder) findParent(c *call) (proved bool) {
	var best continuation
	at := c.lastReply
	for ; at > 0; at-- {
		if best = b.answerAt(c, at); best.from == nil {
			best = b.changedAt(c, at)
		}
		if best.from != nil {
			break
		}
	}
	if e := b.longest(c); e != nil && (best.from == nil || e.seq.len() > best.common) && !b.coincides(c, e) {
		best, at = continuation{from: e, common: e.seq.len()}, len(e.Messages)
	}
	if p := best.from; p != nil {
		c.parent, c.parentAt, c.exact = p, at, p.seq.extends(&c.seq)
	}
	return best.proved || c.exact
}

// coincides reports whether c's request contains the answer of another call in the place of e's
// answer. Then the tokens are the same only because both answers begin with the same tokens.
func (b *builder) coincides(c, e *call) bool {
	if len(e.Messages) == len(c.Messages) || !c.startsWith(e) {
		return false
	}
	k := b.answerAt(c, len(e.Messages))
	return k.from != nil && k.from != e
}

// answerAt returns the call whose answer is the message at position p of c's request. An answer with
// the same text and arguments comes before an answer that only has the same tool-call ids, and a
// request with exactly the messages before p comes before others. If the messages before p are others,
// the message proves an answer that had ended, and that was not yet in its own request: a request can
// begin with an example of an answer, and a conversation can contain equal answers. Then the ids alone
// prove nothing: some engines count them from 0 in every conversation.
func (b *builder) answerAt(c *call, p int) (best continuation) {
	m := b.message(c.Messages[p])
	if !m.isAnswer() {
		return best
	}
	if k := b.best(c, b.byPlace[pair{c.lists[p], m.full}], nil); k.from != nil {
		k.proved = true
		return k
	}
	if same := b.byPlace[pair{c.lists[p], m.number}]; len(same) > 0 {
		k := b.best(c, same, nil)
		k.proved = len(same) == 1 // some engines use the same ids in every conversation
		return k
	}
	contains := func(d *call) bool { return b.contains(c, p, d) }
	here := func(d *call) bool { return d.before(c) && !d.knownHere && contains(d) }
	if k := b.best(c, b.byLast[pair{b.lastMessage(c.Messages[:p]), m.full}], here); k.from != nil {
		k.proved = true
		return k
	}
	first := func(d *call) bool {
		return d.before(c) && !d.known && contains(d) && (d.answer.called() || b.texts[d.answer.text] == 1)
	}
	if k := b.only(c, b.byAnswer[m.full], first); k.from != nil {
		return k
	}
	if k := b.best(c, b.byAnswer[m.full], contains); k.from != nil {
		return k
	}
	return b.best(c, b.byAnswer[m.number], contains)
}

// only returns the best of the calls that fit. It is proved if no other call fits.
func (b *builder) only(c *call, calls []*call, fits func(*call) bool) continuation {
	best := b.best(c, calls, fits)
	best.proved = best.from != nil && !slices.ContainsFunc(calls, func(d *call) bool { return d != best.from && fits(d) })
	return best
}

// contains reports whether the message at position p of c's request, which is the same as d's answer,
// comes from d. Usually the messages of d are before it. If the harness rewrote them, the two
// requests must have enough else in common.
func (b *builder) contains(c *call, p int, d *call) bool {
	sameTools := c.tools.key == d.tools.key
	sameSystem := c.systemList() == d.systemList()
	switch {
	case len(d.Messages) <= p && c.startsWith(d):
		return true
	case d.answer.ids:
		return sameTools && c.tools.key != 0 || sameSystem && c.tools.overlaps(d.tools)
	}
	return sameTools && sameSystem && c.system > 0
}

// changedAt returns the call whose answer the harness could have changed to the message at position p
// of c's request: the messages before p are the call's.
func (b *builder) changedAt(c *call, p int) (best continuation) {
	m := b.message(c.Messages[p])
	if m.role != "assistant" {
		return best
	}
	calls := b.byEnd[c.lists[p]]
	derived := func(d *call) bool { return m.derived(d.answer) }
	if best = b.only(c, calls, derived); best.from == nil {
		return b.best(c, calls, nil)
	}
	return best
}

// longest returns the call with the most tokens among the calls whose prompt and output are the
// beginning of c's prompt, or nil. Of calls with the same tokens it returns the last.
func (b *builder) longest(c *call) (best *call) {
	for n := len(c.Prompt) / blockTokens; n >= 0 && best == nil; n-- {
		blocks := c.seq.blocks(n)
		rests := b.rests[blocks]
		if rests == nil {
			continue
		}
		sum := blocks.sum
		for i, id := range c.Prompt[n*blockTokens : min(len(c.Prompt), (n+1)*blockTokens)] {
			if rests[i] {
				if d := b.byTokens[prefix{n*blockTokens + i, sum}]; d != nil && d.seq.extends(&c.seq) {
					best = d
				}
			}
			sum = addToken(sum, id)
		}
	}
	return best
}

// markRead makes c a reader of the calls whose answers are among the messages that c adds to its
// parent's.
func (b *builder) markRead(c *call) {
	from := 0
	if d := c.parent; d != nil && c.startsWith(d) {
		from = len(d.Messages)
	}
	for p := from; p <= c.lastReply; p++ {
		if c.parent != nil && p == c.parentAt {
			continue // findParent decides about its parent
		}
		k := b.answerAt(c, p)
		if k.from == nil {
			k = b.historyAt(c, p)
		}
		if k.from != nil && k.proved {
			k.from.readers = append(k.from.readers, c)
		}
	}
}

// historyAt returns the call whose answer is the message at position p of c's request, if the request
// contains the history of another conversation: no other answer is the same and replies to the same
// message.
func (b *builder) historyAt(c *call, p int) continuation {
	same := b.byLast[pair{b.lastMessage(c.Messages[:p]), b.message(c.Messages[p]).full}]
	if len(same) != 1 || p == 0 || !same[0].before(c) || same[0].knownHere {
		return continuation{}
	}
	return continuation{from: same[0], proved: true}
}

// lastMessage returns the number of the last of the messages, or -1.
func (b *builder) lastMessage(messages []int) int32 {
	if len(messages) == 0 {
		return -1
	}
	return b.message(messages[len(messages)-1]).number
}
