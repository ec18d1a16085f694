package continuity

// decide returns the spliced prompt, the number of turns in which the spliced prompt differs from
// asked, and the reason. The prompt is nil if asked must be sent unchanged.
func (t *Table) decide(asked []int32) (sent []int32, spliced int, reason Reason) {
	var room [64]place
	places := t.m.places(room[:0], t.seed, asked)
	if !open(places, asked) {
		return nil, 0, ReasonForm
	}
	before := places[:len(places)-1]

	t.mu.Lock()
	s, at := t.longest(before, asked)
	var calls []*call
	blind := false
	if s != nil {
		s.touch(t.cfg.Now())
		calls, blind = s.calls, s.blind // can be read without the lock, because choose reads only immutable fields
	}
	t.mu.Unlock()

	switch {
	case s == nil:
		return nil, 0, ReasonNew
	case blind || len(calls) == 0:
		return nil, 0, ReasonUnknown
	}
	end := t.m.endOf(asked, at)
	if end < 0 {
		return nil, 0, ReasonUnlike
	}
	c, possible, reason := t.choose(calls, asked[at:end])
	first := false
	t.mu.Lock()
	for i, other := range calls {
		if possible&(1<<i) != 0 && other.continuedBy(places[len(places)-1].hash) {
			first = first || other == c
		}
	}
	t.mu.Unlock()
	switch {
	case at != before[len(before)-1].at:
		return nil, 0, ReasonGap
	case c == nil:
		return nil, 0, reason
	}
	spliced = c.spliced
	switch {
	case reason == ReasonSame && c.cut == 0:
		return nil, 0, ReasonSame
	case !t.m.calls(t.cfg.Tokenizer, asked[at:end]) || !t.m.results(t.cfg.Tokenizer, asked[end+1:]):
		return nil, 0, ReasonClient
	case !first:
		return nil, 0, ReasonTaken
	case reason == ReasonSame:
		reason = ReasonContinued
	default:
		spliced++
	}
	n := c.sent + len(c.output) + len(asked) - end - 1
	if t.cfg.MaxPrompt > 0 && n > t.cfg.MaxPrompt {
		return nil, 0, ReasonLong
	}
	sent = c.appendSent(make([]int32, 0, n), asked)
	sent = append(sent, c.output...)
	return append(sent, asked[end+1:]...), spliced, reason
}

// choose returns the call whose output has this print, but only if no other call's output can have
// this print. If it returns no call, the reason preferably refers to a call whose output can have
// this print. In the result possible, bit i is set if the output of calls[i] can have this print.
func (t *Table) choose(calls []*call, printed []int32) (chosen *call, possible uint64, reason Reason) {
	for i, c := range calls {
		v := t.judge(c.output, printed)
		switch {
		case v.equal():
			chosen, reason = c, v.reason
		case chosen == nil && (i == 0 || !v.apart && possible == 0):
			reason = v.reason
		}
		if !v.apart {
			possible |= 1 << i // i < maxCalls
		}
	}
	if chosen != nil && possible&(possible-1) != 0 {
		return nil, possible, ReasonAmbiguous
	}
	return chosen, possible, reason
}

// judge compares an output with a print. An output without the template's end token is never
// spliced, but the server might still have rendered it as this print.
func (t *Table) judge(output, printed []int32) verdict {
	n := len(output) - 1
	if output[n] == t.m.end {
		return t.m.compare(t.cfg.Tokenizer, output[:n], printed)
	}
	if v := t.m.compare(t.cfg.Tokenizer, output, printed); v.apart {
		return v
	}
	return verdict{reason: ReasonEnd}
}
