package session

import (
	"cmp"
	"math"
	"slices"

	"github.com/rollout-rl/rollout/tokenize"
)

// findStarts sets chain.start, the call that started a subagent, for all chains. The package comment
// contains the rules.
func (b *builder) findStarts() {
	linked := false
	for _, x := range b.chains {
		if x.kind == tokenize.ChainSubagent && x.from == nil {
			b.link(x)
			linked = linked || x.linked
		}
	}
	if !linked {
		return
	}
	for _, r := range b.requests {
		b.readResults(r)
	}
	prompts := b.newPrompts()
	for _, x := range b.chains {
		x.chooseStart()
		if x.start == nil {
			continue
		}
		if a, _ := prompts.start(x); a != x.start {
			x.start = nil // the result can come from a tool that waits for an agent of an earlier call
		}
	}
	b.startByPrompts(prompts)
}

// link sets chain.linked if all calls of the chain certainly belong to the conversation of its first
// request. Each call must read an earlier answer of the chain, or repeat a request whose answer was
// not delivered and that no other chain contains. Any other call could belong to another
// conversation with the same messages, or with a rewritten history.
func (b *builder) link(x *chain) {
	linked, repeated := map[*call]bool{x.first(): true}, int32(-1)
	elsewhere := func(d *call) bool { return d.chain != x }
	for _, c := range x.calls {
		if p := c.read; p != nil && linked[p] && !slices.ContainsFunc(b.equal(p, c), elsewhere) {
			linked[c] = true
		}
		if !linked[c] {
			return
		}
		if c.delivered() || c.end() == repeated {
			continue
		}
		repeated = c.end()
		same := b.byEnd[repeated]
		if !slices.ContainsFunc(same, elsewhere) {
			for _, d := range same {
				linked[d] = true
			}
		}
	}
	x.linked = true
}

// equal returns the calls whose answer r can contain in the place of a's answer, including a.
func (b *builder) equal(a, r *call) []*call {
	if r.startsWith(a) {
		return b.byPlace[pair{a.end(), a.answer.full}]
	}
	return b.byAnswer[a.answer.full]
}

// readResults finds the texts of answers in the results that r adds to the answer that it continues.
func (b *builder) readResults(r *call) {
	a := r.read
	if a == nil || !a.answer.called() || len(b.equal(a, r)) > 1 {
		return
	}
	open := map[string]bool{} // the ids of the tool calls without a result
	for _, u := range a.answer.uses {
		open[u.id] = u.id != ""
	}
	carried := map[*quote]int{} // the number of results that contain a quote
	for _, i := range r.Messages[min(r.parentAt+1, len(r.Messages)):] {
		m := b.message(i)
		if m.role == "assistant" {
			break
		}
		if m.role != "tool" || !open[m.toolID] {
			continue
		}
		open[m.toolID] = false
		for _, q := range apart(b.quotes[i]) {
			carried[q]++
		}
	}
	for q, results := range carried {
		q.addStart(a, r, results)
	}
}

// apart returns the quotes of a result whose agents cannot have been started by the agents of the other
// quotes. A result can contain the text of an agent, and the text of another agent that the first agent
// started.
func apart(quotes []*quote) (own []*quote) {
	if len(quotes) <= 1 {
		return quotes
	}
	var chains []*chain
	for _, q := range quotes {
		for _, c := range q.calls {
			if chains = append(chains, c.chain); len(chains) > maxRivals {
				return nil
			}
		}
	}
	for _, q := range quotes {
		if !slices.ContainsFunc(q.calls, func(c *call) bool { return slices.ContainsFunc(chains, c.chain.during) }) {
			own = append(own, q)
		}
	}
	return own
}

// during reports whether y waited for a tool result from the first request of x until the last answer of
// x.
func (x *chain) during(y *chain) bool {
	began, _ := slices.BinarySearchFunc(y.calls, x.first().began, func(d *call, at int64) int { return cmp.Compare(d.began, at) })
	if x == y || began == 0 {
		return false
	}
	d := y.calls[began-1]
	last := x.calls[len(x.calls)-1]
	return d.before(x.first()) && d.answer.called() && (began == len(y.calls) || last.before(y.calls[began]))
}

// addStart adds a to the candidates of the chains whose answer is q. results is the number of results
// of a's tool calls in the request r that contain q.
//
// Each result contains the answer of at most one chain. So there must be at least as many results
// as chains with this answer, and no other answer that contains q. If there are more chains, a
// chain does not count if its headers do not name a's agent as the parent.
func (q *quote) addStart(a, r *call, results int) {
	if q.within <= r.began {
		return
	}
	first := map[*chain]*call{} // by chain: its first call with this answer
	rivals := 0                 // the number of chains that a can have started
	for _, c := range q.calls {
		if !c.before(r) {
			break // the calls after c ended even later
		}
		if first[c.chain] != nil {
			continue
		}
		if first[c.chain] = c; !c.chain.startedElsewhere(a) {
			rivals++
		}
		if rivals > results || len(first) > results+maxRivals {
			return
		}
	}
	for x, c := range first {
		switch {
		case !x.linked || x == a.chain || a.index > x.first().index || !a.before(x.first()):
		case x.contradicts(a):
		case c.ended > q.sent: // the result can be a copy of an earlier message
		case len(first) > results && x.startedElsewhere(a):
		default:
			x.starts = append(x.starts, a)
		}
	}
}

// maxRivals limits the cost if many answers are equal.
const maxRivals = 64

// contradicts reports whether the headers name an agent other than a's as the parent of x.
func (x *chain) contradicts(a *call) bool {
	parent := x.first().ParentAgent
	return parent != "" && a.Agent != "" && parent != a.Agent
}

// startedElsewhere reports whether the chain has headers that do not name a's agent as the parent. It is
// used only to choose between several candidates, because some programs do not name their main agent.
func (x *chain) startedElsewhere(a *call) bool {
	return x.first().Agent != "" && x.first().ParentAgent != a.Agent
}

// chooseStart sets x.start if there is one candidate, or if the headers exclude all candidates but
// one.
func (x *chain) chooseStart() {
	all, named := map[*call]bool{}, map[*call]bool{}
	for _, a := range x.starts {
		all[a] = true
		if x.first().Agent != "" && !x.startedElsewhere(a) {
			named[a] = true
		}
	}
	if len(all) > 1 {
		all = named
	}
	if len(all) == 1 {
		for x.start = range all {
		}
	}
}

// parent returns the start of the chain in the form that rows contain.
func (x *chain) parent() tokenize.Parent {
	if x.start == nil || x.start.Number < 1 || x.start.Number > math.MaxInt32 {
		return tokenize.Parent{}
	}
	return tokenize.Parent{Chain: x.start.chain.number, Step: int32(x.start.Number)} //nolint:gosec // the value is bounded
}
