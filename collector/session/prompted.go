package session

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// startByPrompts sets the starts of subagents whose results come later than the result of the tool call
// that started them. The package comment contains the rules.
func (b *builder) startByPrompts() {
	var open []*chain
	for _, x := range b.chains {
		if x.linked && len(x.starts) == 0 {
			open = append(open, x)
		}
	}
	if len(open) == 0 {
		return
	}
	prompts, returned := newPromptSearch(b.calls), b.returned()
	for _, x := range open {
		a := x.prompted(prompts.find(b.prompt(x)), b.prompt(x))
		if a != nil && returned[[2]*chain{x, a.chain}] {
			x.start = a
		}
	}
}

// prompt returns the text of the last user message in the first request of the chain.
func (b *builder) prompt(x *chain) string {
	for _, i := range slices.Backward(x.first().Messages) {
		if m := b.message(i); m.role == "user" {
			return m.text
		}
	}
	return ""
}

// newPromptSearch returns a search for the strings in the arguments of tool calls.
func newPromptSearch(calls []*call) *quoteSearch {
	byText := map[string]*quote{}
	for _, c := range calls {
		for _, u := range c.answer.uses {
			var arguments any
			if json.Unmarshal([]byte(u.arguments), &arguments) != nil {
				continue
			}
			eachValue(arguments, func(v any) {
				text, _ := v.(string)
				if text = strings.TrimSpace(text); len(text) < minQuote {
					return
				}
				q := byText[text]
				if q == nil {
					q = &quote{text: text, prefix: -1}
					byText[text] = q
				}
				q.calls = append(q.calls, c)
			})
		}
	}
	return searchFor(byText)
}

// prompted returns the only call that can have started the chain: a string in the arguments of its tool
// calls is the end of the prompt. It returns nil if no call or more than one call qualifies. If several
// strings are the end of the prompt, only the longest counts, because the others are parts of it.
func (x *chain) prompted(found []*quote, prompt string) (a *call) {
	var longest *quote
	for _, q := range found {
		if endsWith(prompt, q.text) && (longest == nil || len(q.text) > len(longest.text)) {
			longest = q
		}
	}
	if longest == nil {
		return nil
	}
	for _, c := range longest.calls {
		switch {
		case c == a, c.chain == x, !c.before(x.first()), x.contradicts(c):
		case a != nil:
			return nil
		default:
			a = c
		}
	}
	if a == nil || a.chain.lastBefore(x.first()) != a {
		return nil // a later call can have started the agent, with the name of a file that a wrote
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

// endsWith reports whether the last lines of a prompt are text. Harnesses can insert reminders
// before the text.
func endsWith(prompt, text string) bool {
	before, found := strings.CutSuffix(prompt, text)
	return found && (before == "" || strings.HasSuffix(before, "\n"))
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
