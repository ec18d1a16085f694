package prompt

import (
	"context"
	"errors"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A rebuild finds the prompts of one sample's calls from what the server keeps,
// and checks each against the count of its step.
type rebuild struct {
	evidence *letta.Evidence
	life     *life
	calls    []tokenize.Call
	r        *renderer
	stats    *counters
	// why holds, per call, what was tried and how it went, for people.
	why []string
}

// load fetches the steps and messages of every server run. It fails where a send
// has another number of assistant turns than its run has steps with an output, or
// a turn another number of tokens than its step: then a turn is missing, and
// nothing that follows can be trusted.
func (b *rebuild) load(ctx context.Context, reply *collector.Reply) error {
	e := b.evidence
	b.life = &life{agent: e.Agent, system: e.SystemText, sends: make([]send, len(e.Sends))}
	if e.Conversation != nil {
		// A conversation has a system message of its own, made by its first send.
		c, err := e.Client.Conversation(ctx, e.Conversation.ID)
		if err != nil {
			return err
		}
		if len(c.InContextMessageIDs) > 0 {
			if b.life.system, err = e.Client.SystemText(ctx, c.InContextMessageIDs[0]); err != nil {
				return err
			}
		}
	}
	n := 0
	for i := range b.life.sends {
		s := &b.life.sends[i]
		s.request, s.messages, s.turns, s.first = e.Sends[i].Request, e.Sends[i].Response.Messages, reply.Sends[i].Turns, n
		var err error
		if s.steps, err = e.Steps(ctx, i); err != nil {
			return err
		}
		if s.stored, err = e.Messages(ctx, i); err != nil {
			return err
		}
		b.stats.requests.Add(2)
		if n, err = b.join(s); err != nil {
			return err
		}
	}
	b.life.fate()
	b.why = make([]string, len(b.calls))
	return nil
}

// join pairs the assistant turns of a send with its steps and returns the index of
// the next send's first call.
func (b *rebuild) join(s *send) (int, error) {
	n := s.first
	for t := range s.turns {
		if s.turns[t].Role != tokenize.RoleAssistant {
			continue
		}
		if s.calls == len(s.steps) {
			return 0, hole(n, "call has no step in its server run")
		}
		step := &s.steps[s.calls]
		if got, want := len(s.turns[t].OutputIDs), *step.CompletionTokens; int64(got) != want {
			return 0, hole(n, "call has %d tokens, its step %s says %d", got, step.ID, want)
		}
		b.calls[n].StepID = step.ID
		s.calls++
		n++
	}
	if s.calls < len(s.steps) {
		return 0, hole(n, "server run has %d steps with an output, its answer %d turns", len(s.steps), s.calls)
	}
	return n, nil
}

func hole(call int, format string, args ...any) error {
	return &tokenize.AlignError{
		Turn: call, Token: -1, Reason: tokenize.ReasonHole,
		Err: fmt.Errorf(format+": %w", append(args, tokenize.ErrCounts)...),
	}
}

// fromStored takes the prompts that stored messages give and whose count agrees.
func (b *rebuild) fromStored() error {
	return b.life.stored(func(i int, c conversation) bool {
		ids, err := b.r.prompt(c)
		b.take(i, ids, err, tokenize.SourceStored)
		return true
	})
}

// fromTraces takes the prompts of the calls that are still unknown from provider
// traces: first from that of the send's last call, which holds the messages of the
// earlier ones too; then from the call's own.
func (b *rebuild) fromTraces(ctx context.Context) error {
	for i := range b.life.sends {
		s := &b.life.sends[i]
		if b.known(s) {
			continue
		}
		last, err := b.trace(ctx, s, s.calls-1)
		if err != nil {
			return err
		}
		for k := s.calls - 1; k >= 0; k-- {
			if b.calls[s.first+k].Grade != tokenize.Quarantined {
				continue
			}
			if last != nil && b.fromTrace(last, s, k) {
				continue
			}
			if k == s.calls-1 {
				continue // its own trace was the one tried
			}
			own, err := b.trace(ctx, s, k)
			if err != nil {
				return err
			}
			if own != nil {
				ids, err := b.r.prompt(own.conversation())
				b.take(s.first+k, ids, err, tokenize.SourceTrace)
			}
		}
	}
	return nil
}

// fromTrace takes the prompt of call k of the send from the trace of its last call.
func (b *rebuild) fromTrace(last *traced, s *send, k int) bool {
	n := len(last.messages)
	if back := s.calls - 1 - k; back > 0 {
		if n = last.cut(back); n < 0 {
			return false
		}
	}
	ids, err := b.r.prompt(last.before(n))
	return b.take(s.first+k, ids, err, tokenize.SourceTrace)
}

// trace fetches the trace of call k of the send. It is nil where the server has
// none that belongs to the call.
func (b *rebuild) trace(ctx context.Context, s *send, k int) (*traced, error) {
	i, step := s.first+k, s.steps[k].ID
	b.stats.requests.Add(1)
	t, err := b.evidence.Trace(ctx, step)
	if err != nil {
		return nil, err
	}
	if t == nil {
		b.note(i, "step %s has no trace", step)
		return nil, nil
	}
	system := ""
	if o := s.request.OverrideSystem; o != nil && *o != "" {
		system = b.life.system
	}
	read, err := readTrace(t, b.life.how, system)
	switch {
	case errors.Is(err, errNotNative):
		b.note(i, "step %s: %v", step, err)
		return nil, nil
	case err != nil:
		b.note(i, "trace of step %s: %v", step, err)
		return nil, nil
	case !read.proves(b.calls[i].OutputIDs):
		b.note(i, "trace of step %s answers with other tokens than the turn", step)
		return nil, nil
	}
	return read, nil
}

// take gives call i the prompt if its length is the one that the server counted.
func (b *rebuild) take(i int, ids []int32, err error, source tokenize.PromptSource) bool {
	c := &b.calls[i]
	if err != nil {
		b.note(i, "%s: %v", source, err)
		return false
	}
	want := b.promptTokens(i)
	if int64(len(ids)) != want {
		b.note(i, "%s: rebuilt %d tokens, the server counted %d", source, len(ids), want)
		c.Reason = tokenize.ReasonCountMismatch
		return false
	}
	c.PromptIDs, c.Source, c.Grade, c.Reason = ids, source, tokenize.CountVerified, tokenize.ReasonNone
	return true
}

// promptTokens is what the step of call i counted, or -1.
func (b *rebuild) promptTokens(i int) int64 {
	for j := range b.life.sends {
		s := &b.life.sends[j]
		if i >= s.first && i < s.first+s.calls {
			if p := s.steps[i-s.first].PromptTokens; p != nil {
				return *p
			}
		}
	}
	return -1
}

func (b *rebuild) known(s *send) bool {
	for k := range s.calls {
		if b.calls[s.first+k].Grade == tokenize.Quarantined {
			return false
		}
	}
	return true
}

// blame gives every call that is still unknown its reason: a compaction where the
// server said that there was one at or before the call, else what the counts say.
func (b *rebuild) blame() {
	compacted := false
	for i := range b.life.sends {
		s := &b.life.sends[i]
		compacted = compacted || s.compacted()
		for k := range s.calls {
			if c := &b.calls[s.first+k]; c.Grade == tokenize.Quarantined && compacted {
				c.Reason = tokenize.ReasonCompacted
			}
		}
	}
}

func (b *rebuild) note(i int, format string, args ...any) {
	if b.why[i] != "" {
		b.why[i] += "; "
	}
	b.why[i] += fmt.Sprintf(format, args...)
}
