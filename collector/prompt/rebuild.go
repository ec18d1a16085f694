package prompt

import (
	"context"
	"errors"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// A rebuild finds the prompts of one sample's calls from what the server keeps,
// and checks each against the count of its step.
type rebuild struct {
	rollout *record.Rollout
	life    *life
	calls   []tokenize.Call
	r       *renderer
	stats   *counters
	ends    *ends
	// again says what of the agent had changed when it was read again, nil where that
	// was not done.
	again *string
	// unproven holds, by call, the prompts that stored gives, that have the right length
	// and are not shown to be the model's. It is nil where there are none.
	unproven map[int][]int32
}

// load fetches the steps and messages of every server run. It fails where a send
// has another number of assistant turns than its run has steps with an output, or
// a turn another number of tokens than its step: then a turn is missing, and
// nothing that follows can be trusted.
func (b *rebuild) load(ctx context.Context, reply *collector.Reply) error {
	e := b.rollout
	b.life = &life{rollout: e, agent: e.Agent, system: e.SystemText, sends: make([]send, len(e.Sends))}
	if e.Conversation != nil {
		var err error
		if b.life.system, err = e.ConversationSystem(ctx); err != nil {
			return err
		}
	}
	n, blind := 0, 0
	for i := range b.life.sends {
		s := &b.life.sends[i]
		s.request, s.messages, s.turns, s.first = e.Sends[i].Request, e.Sends[i].Response.Messages, reply.Sends[i].Turns, n
		if s.blind = e.Sends[i].RunID == ""; s.blind {
			n, blind = n+s.count(), i+1
			b.noteSend(s, blind)
			continue
		}
		var err error
		run := e.Run(e.Sends[i].RunID)
		if s.steps, err = run.Calls(ctx); err != nil {
			return err
		}
		if s.stored, err = run.Messages(ctx); err != nil {
			return err
		}
		if n, err = b.join(s); err != nil {
			return err
		}
		if blind > 0 {
			b.noteSend(s, blind)
		}
	}
	b.life.fate()
	b.life.findCompactions()
	if e.Conversation != nil && b.life.compacted() {
		b.life.system = "" // read after the sends: it is that of after the compaction
	}
	return nil
}

// count sets and returns the number of calls of a send by its turns alone.
func (s *send) count() int {
	for t := range s.turns {
		if s.turns[t].Role == tokenize.RoleAssistant {
			s.calls++
		}
	}
	return s.calls
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
		if step.CompletionTokens == nil || int64(len(s.turns[t].OutputIDs)) != *step.CompletionTokens {
			return 0, hole(n, "call has %d tokens, its step %s says %s", len(s.turns[t].OutputIDs), step.ID, counted(step.CompletionTokens))
		}
		if s.stepIndex(step.ID) != s.calls {
			return 0, hole(n, "server run lists step %s twice", step.ID)
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

func counted(n *int64) string {
	if n == nil {
		return "nothing"
	}
	return fmt.Sprint(*n)
}

func hole(call int, format string, args ...any) error {
	return &tokenize.AlignError{
		Turn: call, Token: -1, Reason: tokenize.ReasonHole,
		Err: fmt.Errorf(format+": %w", append(args, tokenize.ErrCounts)...),
	}
}

// fromStored takes the prompts that stored messages give and whose count agrees.
func (b *rebuild) fromStored() error {
	switch {
	case b.rollout.Conversation != nil && b.life.compacted():
		b.noteAll("stored: the conversation was summarized, and its first system message is gone")
		return nil
	case b.life.system == "":
		b.noteAll("stored: the system message was not read")
		return nil
	}
	incomplete := false
	err := b.life.stored(func(s *send, k int, c conversation) {
		incomplete = incomplete || len(s.stored) == 0
		switch i := s.first + k; {
		case s.epochs[k] > 0:
			b.note(i, "stored: the server summarized the history before this call")
		case incomplete && i > 0:
			b.note(i, "stored: the server run has no messages")
		default:
			ids, err := b.r.prompt(c)
			if b.calls[i].Grade == tokenize.Quarantined {
				b.take(s, k, ids, err, tokenize.SourceStored)
			}
			if err == nil && s.witness != nil && k == s.shown {
				b.testify(s, c)
			}
		}
	})
	b.takeBack()
	return err
}

// takeBack takes the prompts of the sends that are doubted from their calls. A send is
// doubted also where its witness could not be compared with anything.
func (b *rebuild) takeBack() {
	for i := range b.life.sends {
		s := &b.life.sends[i]
		if s.doubt == nil && s.witness != nil && !s.heard {
			s.doubt = &doubt{reason: tokenize.ReasonNoPrompt, note: "the trace of step " + s.steps[s.shown].ID + " could not be compared: its prompt was not rebuilt"}
		}
		if s.doubt == nil {
			continue
		}
		for k := range s.calls {
			c := &b.calls[s.first+k]
			if c.Source != tokenize.SourceStored {
				continue
			}
			if !s.doubt.wrong {
				if b.unproven == nil {
					b.unproven = make(map[int][]int32)
				}
				b.unproven[s.first+k] = c.PromptIDs
			}
			c.PromptIDs, c.Source, c.Grade, c.Reason = nil, tokenize.SourceNone, tokenize.Quarantined, s.doubt.reason
			c.TakenOver = s.doubt.late
			b.note(s.first+k, "stored: %s", s.doubt.note)
		}
	}
}

// takeUnproven gives the calls that are still unknown the prompts that are not proven.
func (b *rebuild) takeUnproven() {
	for i, ids := range b.unproven {
		if c := &b.calls[i]; c.Grade == tokenize.Quarantined {
			c.PromptIDs, c.Source, c.Grade, c.Reason = ids, tokenize.SourceStored, tokenize.Unverified, tokenize.ReasonNone
		}
	}
}

// fromTraces takes the prompts of the calls that are still unknown from provider
// traces: first from that of the send's last call, which holds the messages of the
// earlier ones too; then from the call's own.
func (b *rebuild) fromTraces(ctx context.Context) error {
	for i := range b.life.sends {
		s := &b.life.sends[i]
		if s.blind || b.known(s) {
			continue
		}
		last, err := b.trace(ctx, s, s.calls-1)
		if err != nil {
			return err
		}
		for k := s.calls - 1; k >= 0; k-- {
			if b.calls[s.first+k].Grade != tokenize.Quarantined || last != nil && b.fromLast(last, s, k) {
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
				b.take(s, k, ids, err, tokenize.SourceTrace)
			}
		}
	}
	return nil
}

// fromLast takes the prompt of call k of the send from the trace of its last call,
// unless the history was rewritten in between.
func (b *rebuild) fromLast(last *traced, s *send, k int) bool {
	if s.epochs[k] != s.epochs[s.calls-1] || k < s.calls-1 && chooses(b.life.agent) {
		return false
	}
	n := len(last.messages)
	if back := s.calls - 1 - k; back > 0 {
		if n = last.cut(back); n < 0 {
			return false
		}
	}
	ids, err := b.r.prompt(last.before(n))
	return b.take(s, k, ids, err, tokenize.SourceTrace)
}

// trace fetches the trace of call k of the send. It is nil where the server has
// none that belongs to the call, or none that can be used.
func (b *rebuild) trace(ctx context.Context, s *send, k int) (*traced, error) {
	i, step := s.first+k, s.steps[k].ID
	if s.summarized[k] {
		b.note(i, "step %s ran a compaction and has no trace", step)
		return nil, nil
	}
	system := b.systemOver(s)
	if overrides(s.request) {
		if system == "" || s.epochs[k] > 0 {
			b.note(i, "trace: the request overrode the system message, and the native one is not known")
			return nil, nil
		}
		if why, _, err := b.steady(ctx); err != nil || why != "" {
			b.note(i, "trace: the request overrode the system message: %s", why)
			b.calls[i].TakenOver = why == lateWhy
			return nil, err
		}
	}
	t, err := b.rollout.Trace(ctx, step)
	if err != nil {
		return nil, err
	}
	if t == nil {
		b.note(i, "step %s has no trace", step)
		return nil, nil
	}
	read, err := readTrace(t, b.life.how, system)
	switch {
	case errors.Is(err, errNotNative):
		b.note(i, "step %s: %v", step, err)
	case err != nil:
		b.note(i, "trace of step %s: %v", step, err)
	case !read.answer.Proves(b.calls[i].OutputIDs):
		b.note(i, "trace of step %s answers with other tokens than the turn", step)
	case read.shortened:
		b.note(i, "trace of step %s has the text of a tool cut", step)
	default:
		// The engine's own answer says what turns leave out.
		c := &b.calls[i]
		c.FinishReason, c.Version = read.answer.Finish, read.answer.PolicyVersion
		b.ends.learn(read.answer)
		if read.tools, err = given(read.tools, b.life.agent, s.request); err == nil {
			return read, nil
		}
		b.note(i, "trace of step %s: %v", step, err)
	}
	return nil, nil
}

// take gives call k of the send the prompt if its length is the one that the server
// counted.
func (b *rebuild) take(s *send, k int, ids []int32, err error, source tokenize.PromptSource) bool {
	i := s.first + k
	c, want := &b.calls[i], s.steps[k].PromptTokens
	switch {
	case err != nil:
		b.note(i, "%s: %v", source, err)
		return false
	case want == nil:
		b.note(i, "%s: step %s has no count to compare with", source, s.steps[k].ID)
		return false
	case int64(len(ids)) != *want:
		b.note(i, "%s: rebuilt %d tokens, the server counted %d", source, len(ids), *want)
		c.Reason = tokenize.ReasonCountMismatch
		return false
	}
	c.PromptIDs, c.Source, c.Grade, c.Reason, c.TakenOver = ids, source, tokenize.CountVerified, tokenize.ReasonNone, false
	return true
}

func (b *rebuild) known(s *send) bool {
	return complete(b.calls[s.first : s.first+s.calls])
}

// blame gives the calls that are still unknown and come after a compaction that
// reason; the others have theirs.
func (b *rebuild) blame() {
	for i := range b.life.sends {
		s := &b.life.sends[i]
		for k := range s.calls {
			if c := &b.calls[s.first+k]; c.Grade == tokenize.Quarantined && s.epochs[k] > 0 {
				c.Reason = tokenize.ReasonCompacted
			}
		}
	}
}

// note adds to what people are told about call i.
func (b *rebuild) note(i int, format string, args ...any) {
	c := &b.calls[i]
	if c.Note != "" {
		c.Note += "; "
	}
	c.Note += fmt.Sprintf(format, args...)
}

func (b *rebuild) noteSend(s *send, blind int) {
	for k := range s.calls {
		b.note(s.first+k, "stored: send %d names no server run", blind)
	}
}

func (b *rebuild) noteAll(text string) {
	for i := range b.calls {
		if b.calls[i].Grade == tokenize.Quarantined {
			b.note(i, "%s", text)
		}
	}
}
