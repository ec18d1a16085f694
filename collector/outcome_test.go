package collector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// one runs a single sample whose attempts all follow the step.
func (r *rig) one(st step) (*tokenize.Sample, collector.Stats) {
	r.Helper()
	r.b.script = always(st)
	r.finish(tasks(1))
	if len(r.s.samples) != 1 {
		r.Fatalf("%d samples, want 1", len(r.s.samples))
	}
	return r.s.samples[0], r.c.Stats()
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
	type stop struct {
		status string
		data   bool
	}
	cases := map[string]stop{
		"end_turn":            {"completed", true},
		"tool_rule":           {"completed", true},
		"max_steps":           {"max_steps", true},
		"max_tokens_exceeded": {"truncated", true},
		"cancelled":           {"cancelled", false},
		"error":               {"error", false},
		"invalid_tool_call":   {"error", false},
		"requires_approval":   {"error", false},
		"something_new":       {"error", false},
		"":                    {"error", false},
	}
	for reason, tt := range cases {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.cfg.Retries = 3
				s, st := r.one(step{reply: with(func(r *collector.Reply) { r.Sends[0].StopReason = reason })})
				same(r, "status, stop reason", []string{s.Status, s.StopReason}, tt.status, reason)
				if tt.data {
					if len(s.Rows) != 1 || len(s.Failures) != 0 || s.Rows[0].Truncated != (tt.status == "truncated") {
						r.Errorf("rows %+v, failures %+v", s.Rows, s.Failures)
					}
					return
				}
				same(r, "rows, attempts", []int{len(s.Rows), st.Attempts}, 0, 1)
				is(r, "agent errors", st.ByClass[collector.ClassAgentError], 1)
				f := s.Failures[0]
				same(r, "ids", f.OutputIDs, 10, 11, 12)
				same(r, "logprobs", f.Logprobs, -1, -2, -3)
				is(r, "text", f.Text, "ten\ntwelve")
				is(r, "call", f.Call, -1)
			})
		})
	}
}

// The tokens of a failed attempt are stored, for any failure.
func TestFailures(t *testing.T) {
	run := func(err error, reply func() *collector.Reply) step { return step{runErr: err, reply: reply} }
	sent := func(change func(s *collector.Send)) step {
		return step{reply: with(func(r *collector.Reply) { change(&r.Sends[0]) })}
	}
	long := errors.New("line one\nline " + strings.Repeat("ü", 400))
	type failing struct {
		step                 step
		class, stage, reason string
		ids                  int
	}
	bubbles(t, map[string]failing{
		"open":                 {step{openErr: collector.ErrRejected}, "bad_request", "open", "", 0},
		"run":                  {run(long, nil), "internal", "run", "", 0},
		"run after some sends": {run(collector.ErrMalformedCall, goodReply), "malformed_call", "run", "", 3},
		"no sends": {
			step{reply: with(func(r *collector.Reply) { r.Sends = nil })}, "no_turns", "run", "no_turns", 0,
		},
		"no turns": {sent(func(s *collector.Send) { s.Turns = nil }), "no_turns", "run", "no_turns", 0},
		"no turns in a later send": {step{reply: with(func(r *collector.Reply) {
			r.Sends = append(r.Sends, collector.Send{StopReason: "end_turn"})
		})}, "no_turns", "run", "no_turns", 3},
		"lengths differ": {
			sent(func(s *collector.Send) { s.Turns[2].Logprobs = []float32{} }),
			"token_mismatch", "prompt", "length_mismatch", 3,
		},
		"a hole":           {sent(func(s *collector.Send) { s.Usage.Steps = 3 }), "token_mismatch", "align", "hole", 3},
		"no prompt at all": {step{reply: noPrompt}, "no_prompt", "align", "no_prompt", 3},
	}, func(r *rig, tt failing) {
		s, st := r.one(tt.step)
		if st.Failed != 1 || len(s.Rows) != 0 || len(s.Failures) != 1 || s.Status != "error" {
			r.Fatalf("failed %d: sample %+v", st.Failed, s)
		}
		f := s.Failures[0]
		same(r, "class, stage, reason", []string{f.Class, f.Stage, f.Reason}, tt.class, tt.stage, tt.reason)
		same(r, "call, ids, logprobs", []int{int(f.Call), len(f.OutputIDs), len(f.Logprobs)},
			-1, tt.ids, tt.ids)
		if strings.ContainsAny(f.Error, "\n") || len(f.Error) > 400 || f.Error == "" {
			r.Errorf("error %q is not a short line", f.Error)
		}
		if tt.reason == "length_mismatch" && !math.IsNaN(float64(f.Logprobs[2])) {
			r.Errorf("logprobs %v, want NaN for the missing one", f.Logprobs)
		}
	})
}

func TestOneUnknownCallLeavesTheOthers(t *testing.T) {
	bubble(t, func(r *rig) {
		s, st := r.one(step{reply: with(func(r *collector.Reply) { r.Sends[0].Turns[0].PromptIDs = nil })})
		if len(s.Rows) != 1 || len(s.Failures) != 1 || s.Status != "completed" {
			r.Fatalf("%+v, want a row, a failure and completed", s)
		}
		same(r, "mask, with the unknown call's tokens as context", s.Rows[0].LossMask, 0, 0, 0, 0, 0, 0, 0, 1)
		f := s.Failures[0]
		is(r, "call", f.Call, 0)
		same(r, "reason, class", []string{f.Reason, f.Class}, "no_prompt", "no_prompt")
		same(r, "ids", f.OutputIDs, 10, 11)
		same(r, "logprobs", f.Logprobs, -1, -2)
		r.counts(1, 0, 0, 0)
		same(r, "lost calls, sampled, trained", []int64{int64(st.LostCalls), st.Sampled, st.Trained}, 1, 3, 1)
	})
}

// oneToken encodes every text as one token.
type oneToken struct{}

func (oneToken) AppendTokens(dst []int32, _ string) ([]int32, error) { return append(dst, 7), nil }

func TestRequire(t *testing.T) {
	type required struct {
		grade   *tokenize.Grade
		literal bool
		data    bool
	}
	bubbles(t, map[string]required{
		"any, unverified":            {nil, true, true},
		"count_verified, unverified": {new(tokenize.CountVerified), true, false},
		"exact, unverified":          {new(tokenize.Exact), true, false},
		"exact, exact":               {new(tokenize.Exact), false, true},
		"count_verified, exact":      {new(tokenize.CountVerified), false, true},
	}, func(r *rig, tt required) {
		if tt.literal { // proves no prompt: its rows are unverified
			r.b.prompts = promptsOf(r, prompt.Config{Force: tokenize.SourceLiteral, Encoder: oneToken{}})
		}
		r.cfg.Require = tt.grade
		s, _ := r.one(step{})
		if tt.data {
			r.counts(1, 0, 0, 0)
			is(r, "a row", len(s.Rows) > 0, true)
			return
		}
		r.counts(0, 1, 0, 0)
		if len(s.Rows) != 0 || len(s.Failures) != 1 {
			r.Fatalf("%d rows, %d failures, want none and 1", len(s.Rows), len(s.Failures))
		}
		f := s.Failures[0]
		if f.Class != "no_prompt" || f.Reason != "grade" || f.Call != -1 || len(f.OutputIDs) != 3 || !strings.Contains(f.Error, "unverified") {
			r.Errorf("failure %+v", f)
		}
	})
}

func TestSampleWithoutTrainableTokensIsCommitted(t *testing.T) {
	bubble(t, func(r *rig) {
		nan := float32(math.NaN())
		s, st := r.one(step{reply: with(func(r *collector.Reply) {
			r.Sends[0].Turns[0].Logprobs, r.Sends[0].Turns[2].Logprobs = []float32{nan, nan}, []float32{nan}
		})})
		same(r, "rows, failures", []int{len(s.Rows), len(s.Failures)}, 0, 0)
		same(r, "empty samples, empty rows", []int{st.Empty, st.EmptyRows}, 1, 1)
		r.counts(1, 0, 0, 0)
	})
}

// A flag of a send is on its rows and on later rows, which have the send in their context, and on
// no other row. Here the third call is in the second send.
func TestSendsAreFlagged(t *testing.T) {
	forked := func(flag tokenize.Flags, made [2]bool) func() *collector.Reply {
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
	type flagged struct {
		flag       tokenize.Flags
		made, want [2]bool // by sends, by rows
	}
	cases := map[string]flagged{}
	for _, flag := range []tokenize.Flags{tokenize.FlagClientToolContext, tokenize.FlagReattached} {
		name := fmt.Sprint(flag)
		cases[name+", no send"] = flagged{flag, [2]bool{false, false}, [2]bool{false, false}}
		cases[name+", second send"] = flagged{flag, [2]bool{false, true}, [2]bool{false, true}}
		cases[name+", first send"] = flagged{flag, [2]bool{true, false}, [2]bool{true, true}}
	}
	bubbles(t, cases, func(r *rig, tt flagged) {
		s, _ := r.one(step{reply: forked(tt.flag, tt.made)})
		is(r, "rows", len(s.Rows), 2)
		for i := range s.Rows {
			want := tokenize.Flags(0)
			if tt.want[i] {
				want = tt.flag
			}
			is(r, fmt.Sprint("flags of row ", i), s.Rows[i].Flags, want)
		}
	})
}

// Calls cut off by MaxRowTokens are counted: here the second call.
func TestCutIsCounted(t *testing.T) {
	bubble(t, func(r *rig) {
		r.cfg.Align.MaxRowTokens = 6
		s, st := r.one(step{})
		if len(s.Rows) != 1 || s.Rows[0].Flags&tokenize.FlagCut == 0 || !s.Rows[0].Truncated {
			r.Errorf("rows %+v, want one that is cut", s.Rows)
		}
		is(r, "cut calls", st.CutCalls, 1)
		same(r, "cut, sampled, trained tokens", []int64{st.Cut, st.Sampled, st.Trained}, 1, 2, 2)
	})
}

// A scorer checks that it gets a task and its reply, and calls score.
type scorer struct {
	r     *rig
	score func(ctx context.Context) (collector.Reward, error)
}

func (s scorer) Score(ctx context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	same(s.r, "task and output of the scorer", []string{t.ID[:1], r.Output}, "t", "twelve")
	return s.score(ctx)
}

func (r *rig) scorer(score func(context.Context) (collector.Reward, error)) {
	r.cfg.Scorer = scorer{r, score}
}

// The scorer always gets the conversation. The sample has it only if Config.Messages is set.
func TestMessages(t *testing.T) {
	said := `[{"role":"user","content":"hello"},{"role":"assistant","content":"twelve"}]`
	reply := func() *collector.Reply {
		r := goodReply()
		r.Messages = json.RawMessage(said)
		return r
	}
	bubbles(t, map[string]bool{"kept": true, "only scored": false}, func(r *rig, kept bool) {
		scored := ""
		r.cfg.Messages = kept
		r.cfg.Scorer = scoreFunc(func(_ context.Context, _ *collector.Task, reply *collector.Reply) (collector.Reward, error) {
			scored = string(reply.Messages)
			return collector.Reward{Value: new(1.0)}, nil
		})
		s, _ := r.one(step{reply: reply})
		is(r, "scored", scored, said)
		if kept != (s.Messages != nil) || kept && *s.Messages != said {
			r.Errorf("the messages of the sample are %v, kept %t", s.Messages, kept)
		}
	})
}

// The scorer gets the texts of a reply unchanged. All stored and reported texts pass through
// Reply.Redact. The class of the scorer's error stays.
func TestRedact(t *testing.T) {
	redact := func(text string) string { return strings.ReplaceAll(text, "hunter2", "***") }
	bubbles(t, map[string]error{"details": nil, "an error": fmt.Errorf("no answer in hunter2: %w", collector.ErrNoAnswer), "a failure": errors.New("bad hunter2")}, func(r *rig, fails error) {
		var scored, reported string
		r.cfg.Messages = true
		r.cfg.Events.ScoreFailed = func(_ collector.Attempt, err error) { reported = err.Error() }
		r.cfg.Scorer = scoreFunc(func(_ context.Context, _ *collector.Task, reply *collector.Reply) (collector.Reward, error) {
			scored = reply.Output + string(reply.Messages)
			return collector.Reward{Value: new(1.0), Details: json.RawMessage(`{"got":"hunter2"}`)}, fails
		})
		s, st := r.one(step{reply: with(func(r *collector.Reply) {
			r.Output, r.Messages, r.Redact = "my hunter2", json.RawMessage(`["hunter2"]`), redact
		})})
		is(r, "scored", scored, `my hunter2["hunter2"]`)
		is(r, "messages", *s.Messages, `["***"]`)
		is(r, "failures", st.ScorerFailures, map[bool]int{true: 1}[fails != nil && !errors.Is(fails, collector.ErrNoAnswer)])
		if all := *s.RewardDetails + reported; strings.Contains(all, "hunter2") || !strings.Contains(all, "***") {
			r.Errorf("stored and reported: %s", all)
		}
	})
}

type scoreFunc func(context.Context, *collector.Task, *collector.Reply) (collector.Reward, error)

func (f scoreFunc) Score(ctx context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	return f(ctx, t, r)
}

func TestRewards(t *testing.T) {
	type rewarded struct {
		reward  collector.Reward
		err     error
		want    *float64
		details string
		failed  int
	}
	zero, half := new(0.0), new(0.5)
	cases := map[string]rewarded{
		"zero is a score": {reward: collector.Reward{Value: zero}, want: zero},
		"with details": {
			reward: collector.Reward{Value: half, Details: json.RawMessage(`{"a":1}`)}, want: half, details: `{"a":1}`,
		},
		"null": {},
		"a scorer that fails": {
			reward: collector.Reward{Value: half}, err: errors.New(`no "judge"`),
			details: `{"error":"no \"judge\""}`, failed: 1,
		},
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		details := fmt.Sprintf(`{"error":"the scorer returned %v, want a finite number"}`, v)
		cases[details] = rewarded{reward: collector.Reward{Value: &v}, details: details, failed: 1}
	}
	bubbles(t, cases, func(r *rig, tt rewarded) {
		r.scorer(func(context.Context) (collector.Reward, error) { return tt.reward, tt.err })
		s, st := r.one(step{})
		equal(r, "reward", s.Reward, tt.want)
		details := ""
		if s.RewardDetails != nil {
			details = *s.RewardDetails
		}
		is(r, "details", details, tt.details)
		same(r, "rows, unscored, failures", []int{len(s.Rows), st.Unscored, st.ScorerFailures},
			1, tt.failed, tt.failed)
	})
}

func TestEventsOfAnAttempt(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = func(a collector.Attempt) step {
			if a.N == 1 {
				return step{runErr: collector.ErrBusy}
			}
			return step{}
		}
		var log []string
		note := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
		r.cfg.Retries, r.cfg.BackoffMin = 1, 1
		r.cfg.Events = collector.Events{
			AttemptStarted: func(a collector.Attempt, name string) { note("start %d on %s", a.N, name) },
			AttemptFinished: func(r collector.Result) {
				note("finish %d: %v, %d rows, %d of %d tokens", r.Attempt.N, r.Class, r.Rows, r.Trained, r.Sampled)
			},
			RetryWaiting: func(a collector.Attempt, err error, _ time.Duration) {
				note("wait %d: %v", a.N, collector.Classify(err))
			},
			SampleFinished: func(s *tokenize.Sample) func() {
				note("sample of %d rows", len(s.Rows))
				return nil
			},
			SampleDone: func(_ string, err error) { note("done: %v", err) },
		}
		r.finish(tasks(1))
		same(r, "events", log,
			"start 1 on a", "finish 1: rate_limited, 0 rows, 0 of 0 tokens", "wait 1: rate_limited",
			"start 2 on a", "sample of 1 rows", "done: <nil>", "finish 2: none, 1 rows, 3 of 3 tokens",
		)
	})
}

// A call without stored tokens is a failure with its index among all calls. The sample has the
// times of the program that drove it.
func TestMissingCalls(t *testing.T) {
	bubble(t, func(r *rig) {
		began := time.Now().Add(-time.Hour)
		s, _ := r.one(step{reply: with(func(r *collector.Reply) {
			r.Started, r.Sends[0].Duration = began, 3*time.Second
			r.Missing = []collector.MissingCall{
				{Before: 0, Reason: tokenize.ReasonNoTrace, Note: "the first"}, {Before: 1, Reason: tokenize.ReasonCompacted, Note: "the third"},
			}
		})})
		if len(s.Rows) == 0 || !s.StartedAt.Equal(began) || s.Duration != 3*time.Second || s.Working != 3*time.Second {
			r.Errorf("%d rows, %v, %v", len(s.Rows), s.StartedAt, s.Duration)
		}
		var got []string
		for _, f := range s.Failures {
			got = append(got, fmt.Sprintln(f.Call, f.Class, f.Reason, f.Error, len(f.OutputIDs)))
		}
		same(r, "failures", got, "0 no_turns no_trace the first 0\n", "2 no_prompt compacted the third 0\n")
	})
}

// A scorer that fails on every sample ends the run. One successful score, or tasks without a
// reference to score by, do not.
func TestScorerThatFails(t *testing.T) {
	broken := errors.New("judge is gone")
	type scores struct {
		score            func(n int) error
		most             int
		unscored, failed int
		ends             bool
	}
	bubbles(t, map[string]scores{
		"always":   {func(int) error { return broken }, 15, 16, 16, true},
		"no bound": {func(int) error { return broken }, 0, 40, 40, false},
		"once scored": {func(n int) error {
			if n == 5 {
				return nil
			}
			return broken
		}, 15, 39, 39, false},
		"nothing to score by": {func(int) error {
			return fmt.Errorf("no answer: %w", collector.ErrNoAnswer)
		}, 15, 40, 0, false},
	}, func(r *rig, tt scores) {
		n, told := -1, 0 // one worker
		r.cfg.MaxUnscored, r.cfg.Planned = tt.most, 40
		r.cfg.Events.ScoreFailed = func(collector.Attempt, error) { told++ }
		r.scorer(func(context.Context) (collector.Reward, error) {
			n++
			return collector.Reward{Value: new(1.0)}, tt.score(n)
		})
		err := r.run(r.Context(), tasks(40))
		if e, ok := errors.AsType[*collector.ScorerError](err); ok != tt.ends || ok && (e.Samples != tt.failed || !errors.Is(err, collector.ErrTolerance) || !errors.Is(e.Err, broken)) {
			r.Errorf("ended with %v", err)
		}
		st := r.c.Stats()
		same(r, "unscored, failures, reported", []int{st.Unscored, st.ScorerFailures, told},
			tt.unscored, tt.failed, tt.failed)
		if tt.ends {
			r.counts(15, 0, 0, 25) // the sample that ended the run remains
		} else {
			r.counts(40, 0, 0, 0)
		}
	})
}
