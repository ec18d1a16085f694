package collector_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// lost returns the good reply with a lost answer, whose server stores no prompts. If to is nil, an
// earlier process made the send.
func lost(to error) func() *collector.Reply {
	return with(func(r *collector.Reply) { forgetPrompts(&r.Sends[0], to) })
}

func forgetPrompts(s *collector.Send, to error) {
	s.FromRecord, s.Lost, s.Duration = true, to, 40*time.Second
	s.Turns = slices.Clone(s.Turns)
	for i := range s.Turns {
		s.Turns[i].PromptIDs = nil
	}
}

// lostOfTwo has two sends. The first answer was lost.
func lostOfTwo(to error) func() *collector.Reply {
	return with(func(r *collector.Reply) {
		second := goodReply().Sends[0]
		r.Sends = append(r.Sends, second)
		forgetPrompts(&r.Sends[0], to)
	})
}

// A rebuilding prompter rebuilds missing prompts, except after a compaction, or if the agent was
// read too late. The text of the turn marks these cases.
type rebuilding struct {
	err error // returned when a prompt must be rebuilt
}

func (p rebuilding) Prompts(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
	calls, err := fromTurns(ctx, r)
	if err != nil {
		return nil, err
	}
	k := 0
	good := goodReply().Sends[0].Turns
	for i := range r.Sends {
		for j, turn := range r.Sends[i].Turns {
			if turn.Role != tokenize.RoleAssistant {
				continue
			}
			switch c := &calls[k]; {
			case c.Grade != tokenize.Quarantined:
			case p.err != nil:
				return nil, p.err
			case turn.Content == "compacted":
				c.Reason = tokenize.ReasonCompacted
			case turn.Content == "late":
				c.TakenOver = true
			default:
				c.PromptIDs, c.Source, c.Grade, c.Reason = good[j].PromptIDs, tokenize.SourceStored, tokenize.CountVerified, tokenize.ReasonNone
			}
			k++
		}
	}
	return calls, nil
}

// A lost answer costs one infrastructure retry, or none if its process died, and never the sample.
// If the record lacks something that an answer has, another attempt is made. If an answer would
// lack it too, no attempt is made.
func TestLostAnswersAreMadeAgain(t *testing.T) {
	cut := fmt.Errorf("send: %w: unexpected EOF", collector.ErrConnection)
	// marked is a lost answer whose turn has this text.
	marked := func(turn int, text string, to error) func() *collector.Reply {
		return with(func(r *collector.Reply) {
			forgetPrompts(&r.Sends[0], to)
			r.Sends[0].Turns[turn].Content = text
		})
	}
	compacted := marked(2, "compacted", cut)
	exact, counted := tokenize.Exact, tokenize.CountVerified
	yes, no := new(true), new(false)
	type want struct {
		class            collector.Class // of the failure; ClassNone: the sample is data
		reason           string          // of the failure
		attempt          int32
		remade           string // its reason in Stats.Remade; empty: no attempt was made again
		rows, lostCalls  int
		gone, reattached int
		downgraded       int
	}
	type loss struct {
		open    bool // an earlier process made the attempt
		first   func() *collector.Reply
		retries int
		grade   *tokenize.Grade // Config.Require
		brings  *bool           // Config.TurnsHavePrompts
		refusal error           // of the prompter, if a prompt must be rebuilt
		want    want
	}
	whole := want{attempt: 1, rows: 1}
	failed := func(class collector.Class, reason string) want {
		return want{class: class, reason: reason, attempt: 1}
	}
	remade := func(reason string) want { return want{attempt: 2, remade: reason, rows: 1} }
	gone := func(reason string) want { return want{attempt: 4, remade: reason, rows: 1, gone: 1} }
	bubbles(t, map[string]loss{
		"killed":                  {open: true, first: lost(nil), want: gone("no_prompt")},
		"killed after one of two": {open: true, first: lostOfTwo(nil), want: gone("no_prompt")},
		"cut":                     {first: lost(cut), retries: 1, want: remade("no_prompt")},
		"cut, no retry is left":   {first: lost(cut), want: failed(collector.ClassConnection, "no_prompt")},
		"cut after a takeover": {
			open: true, first: lost(cut), retries: 1,
			want: want{attempt: 4, remade: "no_prompt", rows: 1, reattached: 1},
		},
		"one of two cut": {first: lostOfTwo(cut), retries: 1, want: remade("no_prompt")},
		"one of two cut, no retry is left: the rest is kept": {
			first: lostOfTwo(cut), want: want{attempt: 1, rows: 1, lostCalls: 2},
		},
		"exact is required": {first: lost(cut), retries: 1, grade: &exact, want: remade("grade")},
		"exact is required and answers are not": {
			first: lost(cut), retries: 1, grade: &exact, brings: no, want: failed(collector.ClassNoPrompt, "grade"),
		},
		"rebuilt as well as is required": {
			first: lost(cut), retries: 1, grade: &counted, brings: yes, want: want{attempt: 1, rows: 1, downgraded: 1},
		},
		"rebuilt, and answers are too": {first: lost(cut), retries: 1, brings: no, want: whole},
		"compacted, and answers know the prompt": {
			first: compacted, retries: 1, brings: yes, want: remade("compacted"),
		},
		"compacted for an answer too": {
			first: compacted, retries: 1, brings: no, want: want{attempt: 1, rows: 1, lostCalls: 1},
		},
		"read too late to be proven": {open: true, first: marked(0, "late", nil), brings: no, want: gone("no_prompt")},
		"the server refuses to show what it keeps": {
			first: lost(cut), retries: 1, refusal: collector.ErrRejected, want: remade("no_prompt"),
		},
		"what the server keeps does not fit together": {
			open: true, first: lost(nil), want: gone("hole"),
			refusal: &tokenize.AlignError{Turn: 1, Token: -1, Reason: tokenize.ReasonHole, Err: errPlain},
		},
		"tokens that no answer would change": {
			first: with(func(r *collector.Reply) {
				forgetPrompts(&r.Sends[0], cut)
				r.Sends[0].Turns[0].Logprobs = nil
			}),
			retries: 1, want: failed(collector.ClassTokenMismatch, "no_logprobs"),
		},
	}, func(r *rig, tt loss) {
		number := 1
		if tt.open {
			number = 3
			r.cfg.Left = lefts(states{"t0-0": openAt("a", number)})
		}
		r.revived().script = func(a collector.Attempt) step {
			if a.N == number {
				return step{reply: tt.first, takes: time.Second}
			}
			return step{takes: 5 * time.Second}
		}
		if tt.refusal != nil || tt.grade != nil || tt.brings != nil {
			r.b.prompts = rebuilding{tt.refusal}.Prompts
		}
		j := r.notes()
		r.cfg.Retries, r.cfg.Require, r.cfg.TurnsHavePrompts = tt.retries, tt.grade, tt.brings
		r.finish(tasks(1))
		st, sample := r.c.Stats(), r.s.samples[0]
		got := want{
			attempt: sample.Attempt, rows: len(sample.Rows), lostCalls: st.LostCalls, gone: st.Gone, reattached: st.Reattached, downgraded: st.Downgraded,
		}
		if len(sample.Rows) == 0 {
			got.class, _ = collector.ParseClass(sample.Failures[0].Class)
			got.reason = sample.Failures[0].Reason
			is(r, "tokens of the failure", len(sample.Failures[0].OutputIDs), 3)
		}
		for reason, again := range st.Remade {
			got.remade += reason
			is(r, "made again", again.N, 1)
			is(r, "made again after, by the server's clock", again.Mean(), 40*time.Second)
			if !slices.Contains(collector.RemadeReasons(), reason) {
				r.Errorf("reason %q is in no list", reason)
			}
		}
		is(r, "outcome", got, tt.want)
		is(r, "data retries", st.DataRetries, 0)
		if tt.want.remade != "" && (st.InfraRetries != 1 || st.Kept.N != 1 || st.Kept.Mean() != 5*time.Second) {
			r.Errorf("%d retries for infrastructure, kept %+v", st.InfraRetries, st.Kept)
		}
		if tt.want.gone > 0 {
			j.has(r, "end t0-0/3 lost false") // the end of a process is not charged
		}
	})
}

// Received answers show whether answers carry prompts.
func TestAnswersShowWhatTheyBring(t *testing.T) {
	bothWays(t, func(r *rig, along bool) {
		r.b.script = func(a collector.Attempt) step {
			switch {
			case a.Task.ID == "t1" && a.N == 1:
				return step{reply: lost(collector.ErrConnection)}
			case along:
				return step{}
			}
			return step{reply: noPrompt}
		}
		r.b.prompts = rebuilding{}.Prompts
		r.cfg.Retries, r.cfg.Require, r.cfg.BackoffMin, r.cfg.BackoffMax = 3, new(tokenize.Exact), 1, 1
		r.finish(tasks(2))
		if along {
			is(r, "attempts", r.counts(2, 0, 0, 0).Attempts, 3)
		} else {
			is(r, "attempts", r.counts(0, 2, 0, 0).Attempts, 2)
		}
	})
}

// An attempt whose lookup fails counts as gone: the sample keeps its retries for new attempts.
func TestLookingForAnAttemptCostsNoSample(t *testing.T) {
	bubbles(t, map[string]error{
		"rejected": collector.ErrRejected, "server": collector.ErrServer, "plain": errPlain,
	}, func(r *rig, refusal error) {
		r.revived().script = func(a collector.Attempt) step {
			switch {
			case a.Kind == collector.KindReattach && a.Task.ID == "t1":
				return step{openErr: fmt.Errorf("runs: %w", refusal)}
			case a.Task.ID == "t1" && a.N == 3:
				return step{runErr: collector.ErrConnection}
			}
			return step{takes: time.Second}
		}
		r.room(8)
		j := r.notes()
		r.cfg.Retries = 1
		r.cfg.Left = lefts(states{"t1-0": openAt("a", 2)})
		is(r, "gone", r.finish(tasks(60)).counts(60, 0, 0, 0).Gone, 1)
		j.has(r, "end t1-0/2 lost false", "end t1-0/4 none false")
	})
}
