package session

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// startByPrompts sets the starts of subagents whose results come later than the result of the tool call
// that started them. The package comment contains the rules.
func (b *builder) startByPrompts(prompts *prompts) {
	var returned map[[2]*chain]bool
	for _, x := range b.chains {
		if !x.linked || len(x.starts) > 0 {
			continue
		}
		q := prompts.of(x)
		a := x.prompted(q)
		if a == nil || len(q.text) < minQuote || a.chain.lastBefore(x.first()) != a {
			continue // a later call can have started the agent, with the name of a file that a wrote
		}
		if returned == nil {
			returned = b.returned()
		}
		if returned[[2]*chain{x, a.chain}] {
			x.start = a
		}
	}
}

// prompts contains the strings in the arguments of all tool calls. Each can be the prompt of a subagent.
type prompts struct {
	b      *builder
	byText map[string]*quote
	search *quoteSearch // for texts of at least minQuote bytes
}

func (b *builder) newPrompts() *prompts {
	p := &prompts{b: b, byText: map[string]*quote{}}
	long := map[string]*quote{}
	for _, c := range b.calls {
		for _, u := range c.answer.uses {
			var arguments any
			if json.Unmarshal([]byte(u.arguments), &arguments) != nil {
				continue
			}
			eachValue(arguments, func(v any) {
				text, _ := v.(string)
				text = strings.TrimSpace(text)
				q := p.byText[text]
				if q == nil {
					q = &quote{text: text, prefix: -1}
					p.byText[text] = q
				}
				if q.calls = append(q.calls, c); len(text) >= minQuote {
					long[text] = q
				}
			})
		}
	}
	p.search = searchFor(long)
	return p
}

// of returns the longest string that is the prompt of the chain, or the end of its prompt. A string that
// is shorter than minQuote must be the whole prompt. Longer strings count first, because the others are
// parts of them. The prompt is the last user message in the first request. Without such a string, of
// returns nil.
func (p *prompts) of(x *chain) (longest *quote) {
	prompt := ""
	for _, i := range slices.Backward(x.first().Messages) {
		if m := p.b.message(i); m.role == "user" {
			prompt = strings.TrimSpace(m.text)
			break
		}
	}
	if q := p.byText[prompt]; q != nil {
		return q
	}
	for _, q := range p.search.find(prompt) {
		// Harnesses can insert reminders before a prompt.
		if before, ends := strings.CutSuffix(prompt, q.text); ends && strings.HasSuffix(before, "\n") && (longest == nil || len(q.text) > len(longest.text)) {
			longest = q
		}
	}
	return longest
}

// prompted returns the only call with q that can have started the chain, or nil.
func (x *chain) prompted(q *quote) (a *call) {
	if q == nil {
		return nil
	}
	for _, c := range q.calls {
		switch {
		case c == a, c.chain == x, !c.before(x.first()), x.contradicts(c):
		case a != nil:
			return nil
		default:
			a = c
		}
	}
	return a
}

// lastBefore returns the last call of the chain whose answer had ended when c began, or nil.
func (x *chain) lastBefore(c *call) *call {
	began, _ := slices.BinarySearchFunc(x.calls, c.began, func(d *call, at int64) int { return cmp.Compare(d.began, at) })
	for _, d := range slices.Backward(x.calls[:began]) {
		if d.before(c) {
			return d
		}
	}
	return nil
}

// returned returns pairs of chains. The second chain received the text of an answer of the first chain, in a
// tool result or in a user or system message. No earlier message and no other answer contains this text.
func (b *builder) returned() map[[2]*chain]bool {
	pairs := map[[2]*chain]bool{}
	for _, r := range b.calls {
		for _, i := range r.Messages[min(r.parentAt+1, len(r.Messages)):] {
			if b.message(i).role == "assistant" {
				continue
			}
			for _, q := range b.quotes[i] {
				if q.within <= r.began || len(q.calls) > maxRivals {
					continue
				}
				for _, c := range q.calls {
					if c.before(r) && c.ended <= q.sent {
						pairs[[2]*chain{c.chain, r.chain}] = true
					}
				}
			}
		}
	}
	return pairs
}
