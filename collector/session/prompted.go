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
		a, size := prompts.start(x)
		if a == nil || size < minQuote || a.chain.lastBefore(x.first()) != a {
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
	b     *builder
	calls map[string][]*call
	sizes map[int]bool // the lengths of the strings
}

func (b *builder) newPrompts() *prompts {
	p := &prompts{b: b, calls: map[string][]*call{}, sizes: map[int]bool{}}
	for _, c := range b.calls {
		for _, u := range c.answer.uses {
			var arguments any
			if json.Unmarshal([]byte(u.arguments), &arguments) != nil {
				continue
			}
			eachValue(arguments, func(v any) {
				text, _ := v.(string)
				if text = strings.TrimSpace(text); text != "" {
					p.calls[text] = append(p.calls[text], c)
					p.sizes[len(text)] = true
				}
			})
		}
	}
	return p
}

// start returns the only call that can have started the chain: its arguments contain the prompt, or the end
// of the prompt after a line break, because harnesses can insert reminders before a prompt. size is the
// length of this string. The prompt is the last user message in the first request. start returns nil if
// there are several such calls, or if the string is shorter than minQuote and not the whole prompt.
func (p *prompts) start(x *chain) (a *call, size int) {
	rest, more := "", true
	for _, i := range slices.Backward(x.first().Messages) {
		if m := p.b.message(i); m.role == "user" {
			rest = strings.TrimSpace(m.text)
			break
		}
	}
	last := x.first() // the last repetition of the first request: it can come from another agent
	for _, c := range x.calls {
		if c.end() == last.end() {
			last = c
		}
	}
	for whole := true; more; whole = false {
		if p.sizes[len(rest)] { // otherwise do not hash a long text
			for _, c := range p.calls[rest] {
				switch {
				case c == a, c.chain == x, !c.before(last), x.contradicts(c):
				case a != nil:
					return nil, 0
				case !whole && len(rest) < minQuote:
					return nil, 0
				default:
					a, size = c, len(rest)
				}
			}
		}
		_, rest, more = strings.Cut(rest, "\n")
	}
	return a, size
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
				if slices.ContainsFunc(q.calls, func(c *call) bool { return c.chain != q.calls[0].chain }) {
					continue // the text can come from any of the chains
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
