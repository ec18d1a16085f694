package session

import (
	"slices"

	"github.com/rollout-rl/rollout/tokenize"
)

// A fate is what the harness did with an answer.
type fate uint8

const (
	fateRead       fate = iota // it read the answer
	fateSuperseded             // it did not read the answer, and repeated the request
	fateCut                    // the answer is incomplete, and no later prompt contains it
	fateAmbiguous              // unknown
)

var fateReasons = [...]tokenize.Reason{
	fateRead: tokenize.ReasonNone, fateSuperseded: tokenize.ReasonSuperseded,
	fateCut: tokenize.ReasonCutAnswer, fateAmbiguous: tokenize.ReasonAmbiguousRetry,
}

// findRepeats finds for each unread request the later request that repeats it: a request of the same
// conversation that does not contain the answer. It has the same messages, or the same messages and
// more that are not answers. The client must have had time to see the end of the answer.
//
// A client repeats a request that failed or whose answer was not delivered. Such a request explains
// the repeat, so the repeat is not evidence about delivered answers.
func (b *builder) findRepeats() {
	b.byEnd = map[int32][]*call{}
	for _, c := range b.requests {
		var failed, only *call
		all, equal := b.repeated(c), 0
		for _, d := range all {
			switch {
			case !d.whole():
				failed = d
			case d.end() == c.end():
				only = d
				equal++
			}
		}
		if failed != nil {
			failed.repeat = c
			all = nil
		}
		for _, d := range all {
			d.repeat = c
			d.proved = d == only && equal == 1 && samePrompt(d, c) && b.proves(c)
		}
		b.byEnd[c.end()] = append(b.byEnd[c.end()], c)
	}
}

// proves reports whether the client states that c is a retry, and no failed request can be the
// reason. If the request that repeats a failed request is not a retry by its own statement, it can
// also be the first request of another conversation.
func (b *builder) proves(c *call) bool {
	return c.Retry > 0 && !slices.ContainsFunc(b.byEnd[c.end()], func(d *call) bool {
		return !d.whole() && !d.wasRead() && d.tools.key == c.tools.key && (d.repeat == nil || d.repeat.Retry <= 0)
	})
}

// repeated returns the requests that c can repeat. The requests with the same messages come last.
func (b *builder) repeated(c *call) (all []*call) {
	for n := max(c.lastReply+1, 1); n < len(c.lists); n++ {
		for _, d := range b.byEnd[c.lists[n]] {
			if !d.wasRead() && d.repeat == nil && d.tools.key == c.tools.key && d.before(c) {
				all = append(all, d)
			}
		}
	}
	return all
}

// whole reports whether the client received a whole answer.
func (c *call) whole() bool { return answered(c.Call) && c.Delivered && !c.Cut }

func (b *builder) decideFates() {
	for _, c := range b.calls {
		c.fate = b.decideFate(c)
	}
}

// decideFate reads like the table in the package comment.
func (b *builder) decideFate(c *call) fate {
	whole, same := c.whole(), c.repeat != nil && c.repeat.end() == c.end() && samePrompt(c, c.repeat)
	switch {
	case c.wasRead():
		return fateRead
	case whole && c.proved:
		return fateSuperseded
	case whole && c.repeat == nil:
		return fateRead
	case !whole && same:
		return fateSuperseded
	case !whole:
		return fateCut
	case c.Finish == tokenize.FinishLength || c.Finish == tokenize.FinishAbort || c.Finish == "":
		return fateCut
	case same && c.parent == nil && c.answer.text != "" && !c.answer.called && !b.beginsTask(c):
		return fateRead
	case !same && b.replies(c, c.repeat):
		return fateRead
	}
	return fateAmbiguous
}

// samePrompt reports whether two requests with the same messages have the same prompt, as far as their
// prompts are known.
func samePrompt(c, d *call) bool {
	return len(c.Prompt) == 0 || len(d.Prompt) == 0 || slices.Equal(c.Prompt, d.Prompt)
}

// beginsTask reports whether the request begins the conversation about the task, of which there is
// only one: it states the task or, if the task is unknown, it is the first request with tools.
func (b *builder) beginsTask(c *call) bool {
	if b.task != "" {
		return b.aboutTask(c)
	}
	i := slices.IndexFunc(b.calls, func(d *call) bool { return d.tools.key != 0 })
	return i < 0 || b.calls[i].end() == c.end()
}

// replies reports whether the request c, which repeats d with more messages, is a reply to the answer
// of d: the harness rejected the answer, and states why. The reply has a user message that d did not
// have. A message that states the task again proves nothing: some harnesses send it again after they
// lost an answer.
func (b *builder) replies(d, c *call) bool {
	user := false
	for _, text := range c.Messages[len(d.Messages):] {
		if b.message(text).role == "user" {
			if user = true; b.number[text] == c.firstUser || b.statesTask(text) {
				return false
			}
		}
	}
	return user
}

// wasRead reports whether the harness read the answer: a later request contains it. If the answer is
// incomplete, the prompt that continues it must begin with all of its tokens.
func (c *call) wasRead() bool {
	if !c.Cut {
		return len(c.readers) > 0
	}
	return slices.ContainsFunc(c.children, func(d *call) bool { return d.exact })
}

// rejected reports whether the harness read the answer, but replied to it without keeping it.
func (c *call) rejected() bool {
	return c.fate == fateRead && !c.wasRead() && c.repeat != nil && c.repeat.end() != c.end()
}

// dropped reports whether the conversation continued without the answer.
func (c *call) dropped() bool { return c.fate != fateRead && len(c.children) == 0 }
