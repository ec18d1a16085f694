package continuity

// decide returns the spliced prompt for asked, or nil, and the reason.
func (t *Table) decide(asked []int32) ([]int32, Reason) {
	var room [64]place
	places := t.m.places(room[:0], t.seed, asked)
	if !open(places, asked) {
		return nil, ReasonForm
	}
	before := places[:len(places)-1]

	t.mu.Lock()
	s, at := t.longest(before, asked)
	var calls []*call
	blind := false
	if s != nil {
		s.touch(t.cfg.Now())
		calls, blind = s.calls, s.blind // the calls themselves do not change
	}
	t.mu.Unlock()

	switch {
	case s == nil:
		return nil, ReasonNew
	case at != before[len(before)-1].at:
		return nil, ReasonGap
	case blind || len(calls) == 0:
		return nil, ReasonUnknown
	}
	end := t.m.endOf(asked, at)
	if end < 0 {
		return nil, ReasonUnlike
	}
	c, reason := t.choose(calls, asked[at:end])
	switch {
	case c == nil:
		return nil, reason
	case reason == ReasonSame && c.cut == 0:
		return nil, ReasonSame
	case reason == ReasonSame:
		reason = ReasonContinued
	}
	n := c.sent + len(c.output) + len(asked) - end - 1
	if t.cfg.MaxPrompt > 0 && n > t.cfg.MaxPrompt {
		return nil, ReasonLong
	}
	sent := c.appendSent(make([]int32, 0, n), asked)
	sent = append(sent, c.output...)
	return append(sent, asked[end+1:]...), reason
}

// choose returns the one call whose output is printed so. If there is none it returns the
// reason: that of a call of which the print may be, if there is one. One is chosen only
// where the print can be that of no other call.
func (t *Table) choose(calls []*call, printed []int32) (chosen *call, reason Reason) {
	possible := 0
	for i, c := range calls {
		v := t.judge(c.output, printed)
		switch {
		case v.equal():
			chosen, reason = c, v.reason
		case chosen == nil && (i == 0 || !v.apart && possible == 0):
			reason = v.reason
		}
		if !v.apart {
			possible++
		}
	}
	if chosen != nil && possible > 1 {
		return nil, ReasonAmbiguous
	}
	return chosen, reason
}

// judge compares an output with a print. An output that did not end as the template ends a
// turn is never spliced, but may be what was printed.
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
