package session

import (
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
)

// read is the fate of an answer that the harness read. Any other fate is the reason why the answer is
// left out.
const read = tokenize.ReasonNone

func (b *builder) decideFates() {
	for _, c := range b.calls {
		c.fate = b.decideFate(c)
	}
}

// decideFate reads like the table in the package comment. It assumes that an answer is the last one
// of its conversation if no later request repeats its request or continues it. If findChains finds
// that the harness rewrote the history and continued, it calls continued.
func (b *builder) decideFate(c *call) tokenize.Reason {
	delivered, same := c.delivered(), c.repeat != nil && c.repeat.end() == c.end() && samePrompt(c, c.repeat)
	switch {
	case c.wasRead():
		return read
	case delivered && c.stated:
		return tokenize.ReasonSuperseded
	case delivered && c.repeat == nil && c.changed == nil:
		return read
	case !delivered && same:
		return tokenize.ReasonSuperseded
	case !delivered:
		return tokenize.ReasonCutAnswer
	case c.repeat != nil && b.rejects(c):
		return read
	}
	return c.unproved()
}

// unproved returns the fate of a delivered answer without which the conversation continued.
func (c *call) unproved() tokenize.Reason {
	if c.incomplete() {
		return tokenize.ReasonCutAnswer
	}
	return tokenize.ReasonAmbiguousRetry
}

// incomplete reports whether the token limit or the engine stopped the answer.
func (c *call) incomplete() bool {
	return c.Finish == tokenize.FinishLength || c.Finish == tokenize.FinishAbort || c.Finish == ""
}

// continued changes the fate of an answer after which the request d continues the conversation with
// a rewritten history.
func (b *builder) continued(c, d *call) {
	if c.fate == read && !c.wasRead() && c.repeat == nil && !b.askedAgain(c) {
		c.fate, c.changed = c.unproved(), d
	}
}

// askedAgain reports whether a later request has the same messages as c, but other tools. It is not a
// retry, so the harness rejected the answer.
func (b *builder) askedAgain(c *call) bool {
	return slices.ContainsFunc(b.byEnd[c.end()], func(d *call) bool { return c.before(d) && d.tools.key != c.tools.key })
}

// rejects reports whether the request that repeats c with more messages is a reply to the answer: the
// harness rejected the answer, and states why in a user message. A message that the harness sent
// before proves nothing, because some harnesses send the task again after they lost an answer. If the
// answer calls tools, the reply must name one of them.
func (b *builder) rejects(c *call) bool {
	if c.incomplete() || c.repeat.Retry > 0 || len(c.added) == 0 {
		return false
	}
	var reply strings.Builder
	for _, text := range c.added {
		switch m := b.message(text); {
		case m.role == "tool", m.role == "user" && (m.number == c.repeat.firstUser || m.task):
			return false
		case m.role == "user":
			reply.WriteString(m.text)
		}
	}
	if !c.answer.called() {
		return reply.Len() > 0
	}
	return slices.ContainsFunc(c.answer.uses, func(u toolUse) bool { return u.name != "" && strings.Contains(reply.String(), u.name) })
}

// wasRead reports whether a later request proves that the harness read the answer. If the answer is
// incomplete, the prompt that continues it must begin with all of its tokens.
func (c *call) wasRead() bool {
	if !c.Cut {
		return c.quoted || len(c.readers) > 0
	}
	return slices.ContainsFunc(c.children, func(d *call) bool { return d.exact })
}

// rejected reports whether the harness read the answer, but replied to it without keeping it.
func (c *call) rejected() bool { return c.fate == read && !c.wasRead() && c.repeat != nil }

// dropped reports whether the conversation continued without the answer.
func (c *call) dropped() bool { return c.fate != read && len(c.children) == 0 }
