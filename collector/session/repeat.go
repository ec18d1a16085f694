package session

import "slices"

// A repetition is the state of findRepeats. Its keys are pairs of a list of messages and a set of tools.
type repetition struct {
	unread      map[pair][]*call // the requests without a repeat that no later request contains
	unexplained map[pair]int     // the number of failed requests of which no stated retry is known
}

// findRepeats finds for each unread request the later request that repeats it: a request of the same
// conversation that does not contain the answer. It has the same messages, or the same messages and
// more that are not answers. If the harness changed the messages before the last answer, the question
// is the same: see questions. The client must have had time to see the end of the answer.
//
// A client repeats a request that failed or whose answer was not delivered. Such a request explains
// the repeat, so the repeat is not evidence about delivered answers.
func (b *builder) findRepeats() {
	r := &repetition{map[pair][]*call{}, map[pair]int{}}
	for _, c := range b.requests {
		questions := b.questions(c)
		r.setRepeats(c, questions)
		if c.wasRead() {
			continue
		}
		end := pair{c.end(), c.tools.key}
		r.unread[end] = append(r.unread[end], c)
		if q := questions[len(questions)-1]; q != 0 {
			r.unread[pair{q, c.tools.key}] = append(r.unread[pair{q, c.tools.key}], c)
		}
		if !c.delivered() {
			r.unexplained[end]++
		}
	}
}

// questions returns for each n the number of a list: the messages from the answer that c continues,
// or from the system messages, up to the first n messages. It is 0 if there is no question. Tool
// results are recognized by their ids, because harnesses shorten them. Without tools, requests with
// other system messages are other conversations.
func (b *builder) questions(c *call) []int32 {
	all := make([]int32, len(c.lists))
	first, list := c.system, int32(-1)
	if c.parent != nil {
		first, list = c.parentAt+1, int32(-2-c.parent.index)
	} else if c.tools.key == 0 {
		return all
	}
	for i := first; i < len(c.Messages); i++ {
		m := b.message(c.Messages[i])
		number := m.number
		if m.toolID != "" {
			number = b.numberOf("result\x00" + m.toolID)
		}
		list = b.list(list, number)
		all[i+1] = list
	}
	return all
}

// setRepeats makes c the repeat of the requests that it repeats.
func (r *repetition) setRepeats(c *call, questions []int32) {
	var failed, equal *call
	var all []*call
	equals := 0
	seen := map[*call]bool{}
	for n := max(c.lastReply+1, 1); n < len(c.lists); n++ {
		for _, list := range []int32{c.lists[n], questions[n]} {
			key := pair{list, c.tools.key}
			if len(r.unread[key]) == 0 {
				continue
			}
			r.unread[key] = slices.DeleteFunc(r.unread[key], func(d *call) bool { return d.repeat != nil })
			for _, d := range r.unread[key] {
				if seen[d] || !d.before(c) {
					continue
				}
				seen[d] = true
				d.added = c.Messages[n:]
				switch all = append(all, d); {
				case !d.delivered():
					failed = d
				case d.end() == c.end():
					equal = d
					equals++
				}
			}
		}
	}
	if failed != nil {
		failed.repeat = c
		if c.Retry > 0 {
			r.unexplained[pair{failed.end(), c.tools.key}]--
		}
		return
	}
	for _, d := range all {
		d.repeat = c
		d.stated = d == equal && equals == 1 && samePrompt(d, c) && r.states(c)
	}
}

// states reports whether the client states that c is a retry, and no failed request can be the
// reason. If the request that repeats a failed request is not a retry by its own statement, it can
// also be the first request of another conversation.
func (r *repetition) states(c *call) bool {
	return c.Retry > 0 && r.unexplained[pair{c.end(), c.tools.key}] == 0
}

// samePrompt reports whether two requests with the same messages have the same prompt, as far as their
// prompts are known.
func samePrompt(c, d *call) bool {
	return len(c.Prompt) == 0 || len(d.Prompt) == 0 || slices.Equal(c.Prompt, d.Prompt)
}
