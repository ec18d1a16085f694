package collector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// one runs a single sample whose attempts all follow the step.
func one(t *testing.T, st step, edit func(*collector.Config)) (*tokenize.Sample, collector.Stats) {
	t.Helper()
	b, s := &scripted{script: func(collector.Attempt) step { return st }}, &shelf{atOnce: true}
	c := setup(t, b, s, edit)
	finish(t, c, tasks(1))
	b.check(t)
	if len(s.samples) != 1 {
		t.Fatalf("%d samples, want 1", len(s.samples))
	}
	identity(t, c.Stats())
	return s.samples[0], c.Stats()
}

// with returns a function that makes a good reply and changes it.
func with(change func(r *collector.Reply)) func() *collector.Reply {
	return func() *collector.Reply {
		r := goodReply()
		change(r)
		return r
	}
}

func TestStopReasons(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason, status string
		data           bool
	}{
		{"end_turn", "completed", true},
		{"tool_rule", "completed", true},
		{"max_steps", "max_steps", true},
		{"max_tokens_exceeded", "truncated", true},
		{"cancelled", "cancelled", false},
		{"error", "error", false},
		{"invalid_tool_call", "error", false},
		{"requires_approval", "error", false},
		{"something_new", "error", false},
		{"", "error", false},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			reply := with(func(r *collector.Reply) { r.Sends[0].StopReason = tt.reason })
			s, st := one(t, step{reply: reply}, func(cfg *collector.Config) { cfg.Retries = 3 })
			if s.Status != tt.status || s.StopReason != tt.reason {
				t.Errorf("status %q, stop reason %q, want %q, %q", s.Status, s.StopReason, tt.status, tt.reason)
			}
			if tt.data {
				if len(s.Rows) != 1 || len(s.Failures) != 0 || s.Rows[0].Truncated != (tt.status == "truncated") {
					t.Errorf("rows %+v, failures %+v", s.Rows, s.Failures)
				}
				return
			}
			if len(s.Rows) != 0 || st.ByClass[collector.ClassAgentError] != 1 || st.Attempts != 1 {
				t.Errorf("%d rows after %d attempts, by class %v, want one agent_error", len(s.Rows), st.Attempts, st.ByClass)
			}
			f := s.Failures[0]
			if !slices.Equal(f.OutputIDs, []int32{10, 11, 12}) || !slices.Equal(f.Logprobs, []float32{-1, -2, -3}) || f.Text != "ten\ntwelve" || f.Call != -1 {
				t.Errorf("failure %+v, want all tokens and the text", f)
			}
		})
	}
}

// The tokens of a failed attempt are stored, for any failure.
func TestFailures(t *testing.T) {
	t.Parallel()
	long := errors.New("line one\nline " + strings.Repeat("ü", 400))
	tests := []struct {
		name                 string
		step                 step
		class, stage, reason string
		ids                  int
	}{
		{"open", step{openErr: collector.ErrRejected}, "bad_request", "open", "", 0},
		{"run", step{runErr: long}, "internal", "run", "", 0},
		{"run after some sends", step{runErr: collector.ErrMalformedCall, reply: goodReply}, "malformed_call", "run", "", 3},
		{"no sends", step{reply: func() *collector.Reply { return &collector.Reply{} }}, "no_turns", "run", "no_turns", 0},
		{"no turns", step{reply: with(func(r *collector.Reply) { r.Sends[0].Turns = nil })}, "no_turns", "run", "no_turns", 0},
		{"no turns in a later send", step{reply: with(func(r *collector.Reply) {
			r.Sends = append(r.Sends, collector.Send{StopReason: "end_turn"})
		})}, "no_turns", "run", "no_turns", 3},
		{"lengths differ", step{reply: with(func(r *collector.Reply) {
			r.Sends[0].Turns[2].Logprobs = []float32{}
		})}, "token_mismatch", "prompt", "length_mismatch", 3},
		{"a hole", step{reply: with(func(r *collector.Reply) { r.Sends[0].Usage.Steps = 3 })}, "token_mismatch", "align", "hole", 3},
		{"no prompt at all", step{reply: with(func(r *collector.Reply) {
			r.Sends[0].Turns[0].PromptIDs, r.Sends[0].Turns[2].PromptIDs = nil, nil
		})}, "no_prompt", "align", "no_prompt", 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, st := one(t, tt.step, nil)
			if st.Failed != 1 || len(s.Rows) != 0 || len(s.Failures) != 1 || s.Status != "error" {
				t.Fatalf("failed %d: sample %+v", st.Failed, s)
			}
			f := s.Failures[0]
			if f.Class != tt.class || f.Stage != tt.stage || f.Reason != tt.reason || f.Call != -1 {
				t.Errorf("failure %+v, want %s, %s, %q", f, tt.class, tt.stage, tt.reason)
			}
			if len(f.OutputIDs) != tt.ids || len(f.Logprobs) != tt.ids {
				t.Errorf("%d ids, %d logprobs, want %d", len(f.OutputIDs), len(f.Logprobs), tt.ids)
			}
			if strings.ContainsAny(f.Error, "\n") || len(f.Error) > 400 || f.Error == "" {
				t.Errorf("error %q is not a short line", f.Error)
			}
			if tt.name == "lengths differ" && !math.IsNaN(float64(f.Logprobs[2])) {
				t.Errorf("logprobs %v, want NaN for the missing one", f.Logprobs)
			}
		})
	}
}

func TestOneUnknownCallLeavesTheOthers(t *testing.T) {
	t.Parallel()
	s, st := one(t, step{reply: with(func(r *collector.Reply) { r.Sends[0].Turns[0].PromptIDs = nil })}, nil)
	if len(s.Rows) != 1 || len(s.Failures) != 1 || s.Status != "completed" {
		t.Fatalf("%d rows, %d failures, status %s, want 1, 1, completed", len(s.Rows), len(s.Failures), s.Status)
	}
	same(t, "mask, with the unknown call's tokens as context", s.Rows[0].LossMask, []int8{0, 0, 0, 0, 0, 0, 0, 1})
	f := s.Failures[0]
	if f.Call != 0 || f.Reason != "no_prompt" || f.Class != "no_prompt" || !slices.Equal(f.OutputIDs, []int32{10, 11}) || !slices.Equal(f.Logprobs, []float32{-1, -2}) {
		t.Errorf("failure %+v", f)
	}
	counted(t, st, 1, 0, 0, 0)
	if st.LostCalls != 1 || st.Sampled != 3 || st.Trained != 1 {
		t.Errorf("lost calls, sampled, trained = %d, %d, %d, want 1, 3, 1", st.LostCalls, st.Sampled, st.Trained)
	}
}

// oneToken encodes every text as one token.
type oneToken struct{}

func (oneToken) AppendTokens(dst []int32, _ string) ([]int32, error) { return append(dst, 7), nil }

func TestRequire(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		require *tokenize.Grade
		literal bool
		data    bool
	}{
		{"any, unverified", nil, true, true},
		{"count_verified, unverified", new(tokenize.CountVerified), true, false},
		{"exact, unverified", new(tokenize.Exact), true, false},
		{"exact, exact", new(tokenize.Exact), false, true},
		{"count_verified, exact", new(tokenize.CountVerified), false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var st step
			if tt.literal { // proves no prompt: its rows are unverified
				st.prompts = promptsOf(t, prompt.Config{Force: tokenize.SourceLiteral, Encoder: oneToken{}})
			}
			s, stats := one(t, st, func(cfg *collector.Config) { cfg.Require = tt.require })
			if tt.data {
				if counted(t, stats, 1, 0, 0, 0); len(s.Rows) == 0 {
					t.Error("no row")
				}
				return
			}
			if counted(t, stats, 0, 1, 0, 0); len(s.Rows) != 0 || len(s.Failures) != 1 {
				t.Fatalf("%d rows, %d failures, want none and 1", len(s.Rows), len(s.Failures))
			}
			f := s.Failures[0]
			if f.Class != "no_prompt" || f.Reason != "grade" || f.Call != -1 || len(f.OutputIDs) != 3 || !strings.Contains(f.Error, "unverified") {
				t.Errorf("failure %+v", f)
			}
		})
	}
}

func TestSampleWithoutTrainableTokensIsCommitted(t *testing.T) {
	t.Parallel()
	s, st := one(t, step{reply: with(func(r *collector.Reply) {
		r.Sends[0].Turns[0].Logprobs = []float32{nan(), nan()}
		r.Sends[0].Turns[2].Logprobs = []float32{nan()}
	})}, nil)
	if len(s.Rows) != 0 || len(s.Failures) != 0 || st.Committed != 1 || st.Empty != 1 || st.EmptyRows != 1 {
		t.Errorf("%d rows, %d failures, stats %+v, want an empty sample", len(s.Rows), len(s.Failures), st)
	}
}

// A flag of a send is on its rows and on later rows, which have the send in their context, and on
// no other row. Here the third call is in the second send.
func TestSendsAreFlagged(t *testing.T) {
	t.Parallel()
	forked := func(flag tokenize.Flags, made ...bool) func() *collector.Reply {
		return with(func(r *collector.Reply) {
			second := r.Sends[0]
			r.Sends[0].StopReason = "requires_approval"
			second.Turns = []tokenize.Turn{
				{Role: tokenize.RoleTool, Content: "rain", IDMismatch: -1},
				{Role: tokenize.RoleAssistant, PromptIDs: []int32{7, 8}, OutputIDs: []int32{9}, Logprobs: []float32{-1}, IDMismatch: -1},
			}
			second.Usage = collector.Usage{PromptTokens: 2, CompletionTokens: 1, Steps: 1}
			r.Sends = append(r.Sends, second)
			for i := range made {
				r.Sends[i].ClientTools = made[i] && flag == tokenize.FlagClientToolContext
				r.Sends[i].FromRecord = made[i] && flag == tokenize.FlagReattached
			}
		})
	}
	for _, tt := range []struct {
		made []bool
		want []bool
	}{
		{[]bool{false, false}, []bool{false, false}},
		{[]bool{false, true}, []bool{false, true}},
		{[]bool{true, false}, []bool{true, true}},
	} {
		for _, flag := range []tokenize.Flags{tokenize.FlagClientToolContext, tokenize.FlagReattached} {
			s, _ := one(t, step{reply: forked(flag, tt.made...)}, nil)
			var got []bool
			for i := range s.Rows {
				got = append(got, s.Rows[i].Flags == flag)
				if s.Rows[i].Flags&^flag != 0 {
					t.Errorf("flags %v, want only %v", s.Rows[i].Flags, flag)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%v in sends %v: rows flagged %v, want %v", flag, tt.made, got, tt.want)
			}
		}
	}
}

// Calls cut off by MaxRowTokens are counted: here the second call.
func TestCutIsCounted(t *testing.T) {
	t.Parallel()
	s, st := one(t, step{}, func(cfg *collector.Config) { cfg.Align.MaxRowTokens = 6 })
	if len(s.Rows) != 1 || s.Rows[0].Flags&tokenize.FlagCut == 0 || !s.Rows[0].Truncated {
		t.Errorf("rows %+v, want one that is cut", s.Rows)
	}
	if st.CutCalls != 1 || st.Cut != 1 || st.Sampled != 2 || st.Trained != 2 {
		t.Errorf("cut %d calls, %d tokens; sampled %d, trained %d; want 1, 1, 2, 2", st.CutCalls, st.Cut, st.Sampled, st.Trained)
	}
}

type scorerFunc func(ctx context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error)

func (f scorerFunc) Score(ctx context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	return f(ctx, t, r)
}

func TestRewards(t *testing.T) {
	t.Parallel()
	zero, half := 0.0, 0.5
	tests := []struct {
		name    string
		reward  collector.Reward
		err     error
		want    *float64
		details string
	}{
		{"zero is a score", collector.Reward{Value: &zero}, nil, &zero, ""},
		{"with details", collector.Reward{Value: &half, Details: json.RawMessage(`{"a":1}`)}, nil, &half, `{"a":1}`},
		{"null", collector.Reward{}, nil, nil, ""},
		{"a scorer that fails", collector.Reward{Value: &half}, errors.New(`no "judge"`), nil, `{"error":"no \"judge\""}`},
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		details := fmt.Sprintf(`{"error":"the scorer returned %v, want a finite number"}`, v)
		tests = append(tests, tests[3])
		last := &tests[len(tests)-1]
		last.name, last.reward.Value, last.err, last.details = details, &v, nil, details
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, st := one(t, step{}, func(cfg *collector.Config) {
				cfg.Scorer = scorerFunc(func(_ context.Context, task *collector.Task, r *collector.Reply) (collector.Reward, error) {
					if task.ID != "t0" || r.Output != "twelve" {
						t.Errorf("scorer got task %q, output %q", task.ID, r.Output)
					}
					return tt.reward, tt.err
				})
			})
			if !reflect.DeepEqual(s.Reward, tt.want) || len(s.Rows) != 1 {
				t.Errorf("reward %v, %d rows, want %v, 1", s.Reward, len(s.Rows), tt.want)
			}
			details := ""
			if s.RewardDetails != nil {
				details = *s.RewardDetails
			}
			failures := 0
			if strings.Contains(tt.details, "error") {
				failures = 1
			}
			if details != tt.details || st.Unscored != failures || st.ScorerFailures != failures {
				t.Errorf("details %q, unscored %d, failures %d, want %q", details, st.Unscored, st.ScorerFailures, tt.details)
			}
		})
	}
}

func TestEventsOfAnAttempt(t *testing.T) {
	t.Parallel()
	var log []string
	b := &scripted{script: func(a collector.Attempt) step {
		if a.N == 1 {
			return step{runErr: collector.ErrBusy}
		}
		return step{}
	}}
	c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
		cfg.Retries, cfg.BackoffMin = 1, 1
		cfg.Events = collector.Events{
			AttemptStarted: func(a collector.Attempt, endpoint string) {
				log = append(log, fmt.Sprintf("start %d on %s", a.N, endpoint))
			},
			AttemptFinished: func(r collector.Result) {
				log = append(log, fmt.Sprintf("finish %d: %v, %d rows, %d of %d tokens", r.Attempt.N, r.Class, r.Rows, r.Trained, r.Sampled))
			},
			RetryWaiting: func(a collector.Attempt, err error, _ time.Duration) {
				log = append(log, fmt.Sprintf("wait %d: %v", a.N, collector.Classify(err)))
			},
			SampleFinished: func(s *tokenize.Sample) func() {
				log = append(log, fmt.Sprintf("sample of %d rows", len(s.Rows)))
				return nil
			},
			SampleDone: func(_ string, err error) { log = append(log, fmt.Sprintf("done: %v", err)) },
		}
	})
	finish(t, c, tasks(1))
	want := []string{
		"start 1 on a", "finish 1: rate_limited, 0 rows, 0 of 0 tokens", "wait 1: rate_limited",
		"start 2 on a", "sample of 1 rows", "done: <nil>", "finish 2: none, 1 rows, 3 of 3 tokens",
	}
	if !slices.Equal(log, want) {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(log, "\n"), strings.Join(want, "\n"))
	}
}

// A call without stored tokens is a failure with its index among all calls. The sample has the
// times of the program that drove it.
func TestMissingCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now().Add(-time.Hour)
		s, _ := one(t, step{reply: with(func(r *collector.Reply) {
			r.Started, r.Sends[0].Duration = began, 3*time.Second
			r.Missing = []collector.MissingCall{
				{Before: 0, Reason: tokenize.ReasonNoTrace, Note: "the first"}, {Before: 1, Reason: tokenize.ReasonCompacted, Note: "the third"},
			}
		})}, nil)
		if len(s.Rows) == 0 || !s.StartedAt.Equal(began) || s.Duration != 3*time.Second || s.Working != 3*time.Second {
			t.Errorf("%d rows, %v, %v", len(s.Rows), s.StartedAt, s.Duration)
		}
		var got []string
		for _, f := range s.Failures {
			got = append(got, fmt.Sprintln(f.Call, f.Class, f.Reason, f.Error, len(f.OutputIDs)))
		}
		same(t, "failures", got, []string{"0 no_turns no_trace the first 0\n", "2 no_prompt compacted the third 0\n"})
	})
}
