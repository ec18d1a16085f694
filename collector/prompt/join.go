package prompt

import (
	"context"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// join builds the transcript. It fetches the records of every send and pairs turns with steps. It
// returns an error if turns and steps differ in number or in token counts. In that case, a turn is
// missing, and no later turn can be trusted.
func (b *rebuild) join(ctx context.Context, reply *collector.Reply) error {
	r := b.rollout
	system, err := b.fetch(ctx, reply)
	if err != nil {
		return err
	}
	b.transcript = &transcript{rollout: r, system: system, sends: make([]send, len(r.Sends))}
	n, blind := 0, 0
	for i := range b.transcript.sends {
		s := &b.transcript.sends[i]
		s.request, s.messages, s.turns, s.first = r.Sends[i].Request, r.Sends[i].Response.Messages, reply.Sends[i].Turns, n
		if s.blind = r.Sends[i].RunID == ""; s.blind {
			s.calls, blind = tokenize.AssistantTurns(s.turns), i+1
		} else {
			run := r.Run(r.Sends[i].RunID)
			if s.steps, err = run.Calls(ctx); err != nil {
				return err
			}
			if s.stored, err = run.Messages(ctx); err != nil {
				return err
			}
			if err := b.pair(s); err != nil {
				return err
			}
		}
		for k := range s.calls {
			if blind > 0 {
				b.note(s.first+k, "stored: send %d has no server run id", blind)
			}
		}
		n += s.calls
	}
	b.transcript.decide(r.Before)
	b.transcript.findCompactions()
	if r.Conversation != nil && b.transcript.compacted {
		b.transcript.system = "" // the system message was read after the compaction
	}
	return nil
}

// fetch makes all independent requests concurrently. It requests the steps and messages of every
// run and the system message of the conversation. It also requests the trace of each send's last
// call if the answer names the step of that call. It returns the system message.
func (b *rebuild) fetch(ctx context.Context, reply *collector.Reply) (system string, err error) {
	r := b.rollout
	system = r.SystemText
	var all []func(context.Context) error
	if r.Conversation != nil {
		all = append(all, func(ctx context.Context) (err error) {
			system, err = r.ConversationSystem(ctx)
			return err
		})
	}
	for i := range r.Sends {
		if r.Sends[i].RunID == "" {
			continue
		}
		if id := lastStep(reply.Sends[i].Turns, &r.Sends[i]); id != "" {
			all = append(all, prefetchTrace(r, id))
		}
		run := r.Run(r.Sends[i].RunID)
		all = append(all, prefetch(run.Messages), prefetch(run.Steps))
	}
	err = b.lanes.together(ctx, all...)
	return system, err
}

// prefetch turns a function that fetches a value into a function for lanes.together. The value is
// dropped, because the rollout caches it.
func prefetch[T any](fetch func(context.Context) (T, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := fetch(ctx)
		return err
	}
}

// prefetchTrace returns a function that fetches a trace. The function ignores errors, because the
// code that reads the trace repeats the request.
func prefetchTrace(r *record.Rollout, stepID string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, _ = r.Trace(ctx, stepID)
		return nil
	}
}

func (b *rebuild) pair(s *send) error {
	for t := range s.turns {
		if s.turns[t].Role != tokenize.RoleAssistant {
			continue
		}
		n := s.first + s.calls
		if s.calls == len(s.steps) {
			return hole(n, "the call has no step in its server run")
		}
		step := &s.steps[s.calls]
		if step.CompletionTokens == nil || int64(len(s.turns[t].OutputIDs)) != *step.CompletionTokens {
			return hole(n, "the call has %d output tokens, but step %s reports %s", len(s.turns[t].OutputIDs), step.ID, counted(step.CompletionTokens))
		}
		if s.stepIndex(step.ID) != s.calls {
			return hole(n, "the server run lists step %s twice", step.ID)
		}
		b.calls[n].StepID = step.ID
		s.calls++
	}
	if s.calls < len(s.steps) {
		return hole(s.first+s.calls, "the server run has %d steps with output, but its answer has %d turns", len(s.steps), s.calls)
	}
	return nil
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
