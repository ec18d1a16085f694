package session

import (
	"slices"

	"github.com/rollout-rl/rollout/tokenize"
)

// chooseKinds finds the main chain, numbers the chains and sets their kinds.
func (b *builder) chooseKinds() {
	main := b.mainChain()
	if main == nil {
		main = &chain{}
	}
	others := slices.DeleteFunc(b.chains, func(x *chain) bool { return x == main })
	b.chains = slices.Insert(others, 0, main)
	all := &toolSet{names: map[string]bool{}} // the tools of the main chain
	for _, c := range main.calls {
		for name := range c.tools.names {
			all.key, all.names[name] = -1, true
		}
	}
	for i, x := range b.chains {
		x.number = int32(i)
		x.other = len(main.calls) > 0 && x.first().model != main.first().model
		if i > 0 {
			x.kind = b.kindOf(x, all)
		}
	}
}

// mainChain returns the chain whose first request contains the task's prompt in a user message. If
// there are several, chains with tools come first, then the earliest. Of chains with the same first
// request, the chain that lasts longest comes first. If the prompt is unknown, every chain qualifies.
func (b *builder) mainChain() (main *chain) {
	for _, x := range b.chains {
		c := x.first()
		if x.from != nil || b.task != "" && !b.aboutTask(c) {
			continue
		}
		switch {
		case main == nil, main.first().tools.key == 0 && c.tools.key != 0:
			main = x
		case c.tools.key == main.first().tools.key && c.end() == main.first().end() && x.last.index > main.last.index:
			main = x
		}
	}
	return main
}

// aboutTask reports whether a user message of the request contains the task's prompt.
func (b *builder) aboutTask(c *call) bool {
	return slices.ContainsFunc(c.Messages, func(i int) bool { return b.message(i).task })
}

// kindOf returns the kind of a chain that is not the main chain. The kind of the chain from which
// it forked is already known.
func (b *builder) kindOf(x *chain, main *toolSet) tokenize.ChainKind {
	c := x.first()
	switch {
	case x.other, x.from != nil && c.auxiliary():
		return tokenize.ChainAuxiliary
	case x.from != nil:
		return x.from.chain.kind
	case c.tools.key == 0 || !c.tools.overlaps(main) || b.startsWithAnswers(c):
		return tokenize.ChainAuxiliary
	}
	return tokenize.ChainSubagent
}

// startsWithAnswers reports whether the request contains an answer of an earlier call of another chain
// as an assistant message. Such a chain begins with the history of the other chain.
func (b *builder) startsWithAnswers(c *call) bool {
	for p := 0; p <= c.lastReply; p++ {
		if m := b.message(c.Messages[p]); m.isAnswer() {
			for _, d := range b.byAnswer[m.number] {
				if d.index < c.index && d.chain != c.chain {
					return true
				}
			}
		}
	}
	return false
}
