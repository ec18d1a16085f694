package prompt

import (
	"context"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// join makes the transcript: it fetches the record of every send and pairs turns with steps. It
// returns an error if their numbers or their token counts differ. Then a turn is missing, and no
// later turn can be trusted.
func (b *rebuild) join(ctx context.Context, reply *collector.Reply) error {
	r := b.rollout
	if err := b.fetch(ctx, reply); err != nil {
		return err
	}
	b.transcript = &transcript{rollout: r, system: r.SystemText, sends: make([]send, len(r.Sends))}
	if r.Conversation != nil {
		b.transcript.system = *b.conversationSystem
	}
	n, blind := 0, 0
	for i := range b.transcript.sends {
		s := &b.transcript.sends[i]
		s.request, s.messages, s.turns, s.first = r.Sends[i].Request, r.Sends[i].Response.Messages, reply.Sends[i].Turns, n
		if s.blind = r.Sends[i].RunID == ""; s.blind {
			s.calls, blind = tokenize.AssistantTurns(s.turns), i+1
			n += s.calls
			b.noteBlind(s, blind)
			continue
		}
		var err error
		run := r.Run(r.Sends[i].RunID)
		if s.steps, err = run.Calls(ctx); err != nil {
			return err
		}
		if s.stored, err = run.Messages(ctx); err != nil {
			return err
		}
		if n, err = b.pair(s); err != nil {
			return err
		}
		if blind > 0 {
			b.noteBlind(s, blind)
		}
	}
	b.transcript.decide(r.Before)
	b.transcript.findCompactions()
	if r.Conversation != nil && b.transcript.compacted() {
		b.transcript.system = "" // it was read after the compaction
	}
	return nil
}

// fetch makes all independent requests concurrently: steps and messages of every run, the system
// message of the conversation, and the traces of last calls whose step the answer names.
func (b *rebuild) fetch(ctx context.Context, reply *collector.Reply) error {
	r := b.rollout
	var all []func(context.Context) error
	if r.Conversation != nil && b.conversationSystem == nil {
		all = append(all, b.askConversation)
	}
	for i := range r.Sends {
		if r.Sends[i].RunID == "" {
			continue
		}
		if id := lastStep(reply.Sends[i].Turns, &r.Sends[i]); id != "" {
			all = append(all, func(ctx context.Context) error {
				_, _ = r.Trace(ctx, id) // a later caller repeats it and gets the error
				return nil
			})
		}
		run := r.Run(r.Sends[i].RunID)
		all = append(all, askMessages(run), askSteps(run))
	}
	return b.lanes.together(ctx, all...)
}

func (b *rebuild) askConversation(ctx context.Context) error {
	text, err := b.rollout.ConversationSystem(ctx)
	if err == nil {
		b.conversationSystem = &text
	}
	return err
}

func askMessages(run *record.Run) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := run.Messages(ctx)
		return err
	}
}

func askSteps(run *record.Run) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := run.Steps(ctx)
		return err
	}
}

// pair pairs the assistant turns of a send with its steps. It returns the next send's first index.
func (b *rebuild) pair(s *send) (int, error) {
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
			return 0, hole(n, "call has %d tokens, but its step %s has %s", len(s.turns[t].OutputIDs), step.ID, counted(step.CompletionTokens))
		}
		if s.stepIndex(step.ID) != s.calls {
			return 0, hole(n, "server run lists step %s twice", step.ID)
		}
		b.calls[n].StepID = step.ID
		s.calls++
		n++
	}
	if s.calls < len(s.steps) {
		return 0, hole(n, "server run has %d steps with output, but its answer has %d turns", len(s.steps), s.calls)
	}
	return n, nil
}

func counted(n *int64) string {
	if n == nil {
		return "no count"
	}
	return fmt.Sprint(*n)
}

// hole returns the error for a sample that lacks a turn or a step.
func hole(call int, format string, args ...any) error {
	return &tokenize.AlignError{
		Turn: call, Token: -1, Reason: tokenize.ReasonHole,
		Err: fmt.Errorf(format+": %w", append(args, tokenize.ErrCounts)...),
	}
}
