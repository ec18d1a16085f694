package prompt

import (
	"context"
	"errors"

	"github.com/rollout-rl/rollout/tokenize"
)

// fromTraces rebuilds the missing prompts from traces. It first tries the trace of the send's last
// call, which also contains the messages of earlier calls. Then it tries the call's own trace. If
// another program drove the run, fromTraces uses only the call's own trace.
func (b *rebuild) fromTraces(ctx context.Context) error {
	for i := range b.transcript.sends {
		s := &b.transcript.sends[i]
		if s.blind || complete(b.calls[s.first:s.first+s.calls]) {
			continue
		}
		ownOnly := b.rollout.Recorded
		var last *traced
		if !ownOnly {
			var err error
			if last, err = b.trace(ctx, s, s.calls-1); err != nil {
				return err
			}
		}
		for k := s.calls - 1; k >= 0; k-- {
			if b.calls[s.first+k].Grade != tokenize.Quarantined || last != nil && b.fromLast(last, s, k) || k == s.calls-1 && !ownOnly {
				continue
			}
			own, err := b.trace(ctx, s, k)
			switch {
			case err != nil:
				return err
			case own == nil:
			case ownOnly && !b.compiled(own):
				b.note(s.first+k, "trace of step %s: the system message is not the agent's, and the server did not compile it: "+
					"the request overrode it, or the agent was edited", s.steps[k].ID)
			default:
				_, _ = b.try(s, k, own.input(), tokenize.SourceTrace) // the note includes the error
			}
		}
	}
	return nil
}

// fromLast rebuilds the prompt of call k from the trace of the send's last call. It reports whether
// the prompt was accepted. It does not try if a compaction ran between the two calls or if the two
// calls can have different tools.
func (b *rebuild) fromLast(last *traced, s *send, k int) bool {
	if s.epochs[k] != s.epochs[s.calls-1] || k < s.calls-1 && toolsVary(b.transcript.agent()) {
		return false
	}
	n := len(last.messages)
	if back := s.calls - 1 - k; back > 0 {
		if n = last.cut(back); n < 0 {
			return false
		}
	}
	accepted, _ := b.try(s, k, last.before(n), tokenize.SourceTrace) // the note includes the error
	return accepted
}

// trace fetches the trace of call k in the send. It returns nil if there is no usable trace.
func (b *rebuild) trace(ctx context.Context, s *send, k int) (*traced, error) {
	i, step := s.first+k, s.steps[k].ID
	if s.summarized[k] {
		b.note(i, "step %s ran a compaction and has no trace", step)
		return nil, nil
	}
	system := b.systemOver(s)
	if overrides(s.request) {
		if system == "" || s.epochs[k] > 0 {
			b.note(i, "trace: the request overrides the system message, and the native system message is unknown")
			return nil, nil
		}
		if why, _, err := b.unchanged(ctx); err != nil || why != "" {
			b.note(i, "trace: the request overrides the system message, and %s", why)
			b.calls[i].TakenOver = why == whyLate
			return nil, err
		}
	}
	t, err := b.rollout.Trace(ctx, step)
	if err != nil {
		return nil, err
	}
	switch {
	case t == nil && unstored(&b.calls[i]):
		b.note(i, "step %s has no trace: %s", step, unstorable)
		return nil, nil
	case t == nil:
		b.note(i, "step %s has no trace", step)
		return nil, nil
	}
	read, err := readTrace(t, b.transcript.decisions, system)
	switch {
	case errors.Is(err, errNotNative):
		b.note(i, "step %s: %v", step, err)
	case err != nil:
		b.note(i, "trace of step %s: %v", step, err)
	case !read.answer.Proves(b.calls[i].OutputIDs):
		b.note(i, "trace of step %s has different output tokens than the turn", step)
	case read.shortened:
		b.note(i, "trace of step %s has truncated tool text", step)
	default:
		// The engine's answer contains fields that are missing from turns.
		c := &b.calls[i]
		read.answer.Describe(c)
		b.finish.learn(read.answer)
		if read.tools, err = shownTools(read.tools, b.transcript.agent(), s.request); err == nil {
			return read, nil
		}
		if b.rollout.Recorded {
			err = errToday
		}
		b.note(i, "trace of step %s: %v", step, err)
	}
	return nil, nil
}
