package collector_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
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

func setPrompts(cfg *collector.Config, p rebuilding) {
	cfg.Endpoints[0].Backend.(*revived).prompts = p.Prompts
}

// A lost answer costs one infrastructure retry, or none if its process died, and never the sample.
// If the record lacks something that an answer has, another attempt is made. If an answer would
// lack it too, no attempt is made.
func TestLostAnswersAreMadeAgain(t *testing.T) {
	t.Parallel()
	cut := fmt.Errorf("send: %w: unexpected EOF", collector.ErrConnection)
	compacted := with(func(r *collector.Reply) {
		forgetPrompts(&r.Sends[0], cut)
		r.Sends[0].Turns[2].Content = "compacted"
	})
	exact, counted := tokenize.Exact, tokenize.CountVerified
	retry := func(cfg *collector.Config) { cfg.Retries = 1 }
	needs := func(grade *tokenize.Grade, turnsHavePrompts *bool) func(*collector.Config) {
		return func(cfg *collector.Config) {
			cfg.Retries, cfg.Require, cfg.TurnsHavePrompts = 1, grade, turnsHavePrompts
		}
	}
	type want struct {
		class            collector.Class // of the failure; ClassNone: the sample is data
		reason           string          // of the failure
		attempt          int32
		remade           string // its reason in Stats.Remade; empty: no attempt was made again
		rows, lostCalls  int
		gone, reattached int
		downgraded       int
	}
	for _, tt := range []struct {
		name  string
		open  bool // an earlier process made the attempt
		first func() *collector.Reply
		edit  func(*collector.Config)
		want  want
	}{
		{"killed", true, lost(nil), nil, want{attempt: 4, remade: "no_prompt", rows: 1, gone: 1}},
		{
			"killed after one of two messages", true, lostOfTwo(nil), nil,
			want{attempt: 4, remade: "no_prompt", rows: 1, gone: 1},
		},
		{"cut", false, lost(cut), retry, want{attempt: 2, remade: "no_prompt", rows: 1}},
		{
			"cut, and no retry is left", false, lost(cut), nil,
			want{class: collector.ClassConnection, reason: "no_prompt", attempt: 1},
		},
		{"cut after a takeover", true, lost(cut), retry, want{attempt: 4, remade: "no_prompt", rows: 1, reattached: 1}},
		{"one of two messages cut", false, lostOfTwo(cut), retry, want{attempt: 2, remade: "no_prompt", rows: 1}},
		{
			"one of two messages cut, and no retry is left: the rest is kept", false, lostOfTwo(cut), nil,
			want{attempt: 1, rows: 1, lostCalls: 2},
		},
		{"exact is required", false, lost(cut), needs(&exact, nil), want{attempt: 2, remade: "grade", rows: 1}},
		{
			"exact is required and answers are not", false, lost(cut), needs(&exact, new(false)),
			want{class: collector.ClassNoPrompt, reason: "grade", attempt: 1},
		},
		{
			"rebuilt as well as is required", false, lost(cut), needs(&counted, new(true)),
			want{attempt: 1, rows: 1, downgraded: 1},
		},
		{"rebuilt, and answers are too", false, lost(cut), needs(nil, new(false)), want{attempt: 1, rows: 1}},
		{
			"compacted, and answers know the prompt", false, compacted, needs(nil, new(true)),
			want{attempt: 2, remade: "compacted", rows: 1},
		},
		{
			"compacted for an answer too", false, compacted, needs(nil, new(false)),
			want{attempt: 1, rows: 1, lostCalls: 1},
		},
		{
			"read too late to be proven", true, with(func(r *collector.Reply) {
				forgetPrompts(&r.Sends[0], nil)
				r.Sends[0].Turns[0].Content = "late"
			}), func(cfg *collector.Config) { cfg.TurnsHavePrompts = new(false) },
			want{attempt: 4, remade: "no_prompt", rows: 1, gone: 1},
		},
		{
			"the server refuses to show what it keeps", false, lost(cut), func(cfg *collector.Config) {
				cfg.Retries = 1
				setPrompts(cfg, rebuilding{collector.ErrRejected})
			},
			want{attempt: 2, remade: "no_prompt", rows: 1},
		},
		{
			"what the server keeps does not fit together", true, lost(nil), func(cfg *collector.Config) {
				setPrompts(cfg, rebuilding{&tokenize.AlignError{Turn: 1, Token: -1, Reason: tokenize.ReasonHole, Err: errPlain}})
			},
			want{attempt: 4, remade: "hole", rows: 1, gone: 1},
		},
		{
			"tokens that no answer would change", false, with(func(r *collector.Reply) {
				forgetPrompts(&r.Sends[0], cut)
				r.Sends[0].Turns[0].Logprobs = nil
			}), retry,
			want{class: collector.ClassTokenMismatch, reason: "no_logprobs", attempt: 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				number := 1
				left := map[string]collector.SampleState{}
				if tt.open {
					number, left["t0-0"] = 3, openAt("a", 3)
				}
				b := &revived{scripted: scripted{script: func(a collector.Attempt) step {
					if a.N == number {
						return step{reply: tt.first, takes: time.Second}
					}
					return step{takes: 5 * time.Second}
				}}}
				s, j := &shelf{atOnce: true}, &notebook{}
				c := setup(t, b, s, func(cfg *collector.Config) {
					cfg.Left, cfg.Journal = lefts(left), j
					if tt.edit != nil {
						tt.edit(cfg)
					}
					if b.prompts == nil && (cfg.Require != nil || cfg.TurnsHavePrompts != nil) {
						setPrompts(cfg, rebuilding{})
					}
				})
				finish(t, c, tasks(1))
				b.check(t)
				st, sample := c.Stats(), s.samples[0]
				got := want{
					attempt: sample.Attempt, rows: len(sample.Rows), lostCalls: st.LostCalls, gone: st.Gone, reattached: st.Reattached, downgraded: st.Downgraded,
				}
				if len(sample.Rows) == 0 {
					got.class, _ = collector.ParseClass(sample.Failures[0].Class)
					if got.reason = sample.Failures[0].Reason; len(sample.Failures[0].OutputIDs) != 3 {
						t.Errorf("the failure keeps %d tokens", len(sample.Failures[0].OutputIDs))
					}
				}
				for reason, r := range st.Remade {
					got.remade += reason
					if r.N != 1 || r.Mean() != 40*time.Second { // by the server's clock
						t.Errorf("made again for %s: %+v", reason, r)
					}
					if !slices.Contains(collector.RemadeReasons(), reason) {
						t.Errorf("reason %q is in no list", reason)
					}
				}
				if got != tt.want {
					t.Errorf("got %+v\nwant %+v\n%q", got, tt.want, j.lines)
				}
				if st.DataRetries != 0 || tt.want.remade != "" && (st.InfraRetries != 1 || st.Kept.N != 1 || st.Kept.Mean() != 5*time.Second) {
					t.Errorf("%d retries for data, %d for infrastructure, kept %+v", st.DataRetries, st.InfraRetries, st.Kept)
				}
				if tt.want.gone > 0 && !slices.Contains(j.lines, "end t0-0/3 lost false") {
					t.Errorf("the end of a process was charged: %q", j.lines)
				}
			})
		})
	}
}

// Received answers show whether answers carry prompts.
func TestAnswersShowWhatTheyBring(t *testing.T) {
	t.Parallel()
	bare := with(func(r *collector.Reply) {
		for i := range r.Sends[0].Turns {
			r.Sends[0].Turns[i].PromptIDs = nil
		}
	})
	for _, along := range []bool{true, false} {
		exact := tokenize.Exact
		b := &scripted{script: func(a collector.Attempt) step {
			switch {
			case a.Task.ID == "t1" && a.N == 1:
				return step{reply: lost(collector.ErrConnection)}
			case along:
				return step{}
			}
			return step{reply: bare}
		}}
		b.prompts = rebuilding{}.Prompts
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.Retries, cfg.Require, cfg.BackoffMin, cfg.BackoffMax = 3, &exact, 1, 1
		})
		finish(t, c, tasks(2))
		st := c.Stats()
		if along && (st.Committed != 2 || st.Attempts != 3) || !along && (st.Failed != 2 || st.Attempts != 2) {
			t.Errorf("prompts come along: %v; %d committed, %d failed in %d attempts", along, st.Committed, st.Failed, st.Attempts)
		}
	}
}

// An attempt whose lookup fails counts as gone: the sample keeps its retries for new attempts.
func TestLookingForAnAttemptCostsNoSample(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{collector.ErrRejected, collector.ErrServer, errPlain} {
		synctest.Test(t, func(t *testing.T) {
			b := &revived{scripted: scripted{script: func(a collector.Attempt) step {
				switch {
				case a.Kind == collector.KindReattach && a.Task.ID == "t1":
					return step{openErr: fmt.Errorf("runs: %w", refusal)}
				case a.Task.ID == "t1" && a.N == 3:
					return step{runErr: collector.ErrConnection}
				}
				return step{takes: time.Second}
			}}}
			s, j := &shelf{atOnce: true}, &notebook{}
			c := setup(t, b, s, func(cfg *collector.Config) {
				cfg.Endpoints[0].MaxInFlight, cfg.Retries, cfg.Journal = 8, 1, j
				cfg.Left = lefts(map[string]collector.SampleState{"t1-0": openAt("a", 2)})
			})
			finish(t, c, tasks(60))
			b.check(t)
			st := counts(t, c, 60, 0, 0, 0)
			if st.Gone != 1 || !slices.Contains(j.lines, "end t1-0/2 lost false") || !slices.Contains(j.lines, "end t1-0/4 none false") {
				t.Errorf("%v: gone %d, journal %q", refusal, st.Gone, j.lines)
			}
		})
	}
}
