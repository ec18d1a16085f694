package collector_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// noPrompt is a reply without prompts.
func noPrompt() *collector.Reply {
	return with(func(r *collector.Reply) {
		for i := range r.Sends[0].Turns {
			r.Sends[0].Turns[i].PromptIDs = nil
		}
	})()
}

// A run ends with the reason if its first samples all fail for the same reason, unless the cause
// can be one task or the policy.
func TestBarrenRun(t *testing.T) {
	t.Parallel()
	const samples = 400
	for _, tt := range []struct {
		name   string
		group  int // samples of a task
		step   func(n int) step
		failed int // samples that failed when the run ends; 0: it finishes
	}{
		{"no prompt is known", 1, func(int) step { return step{reply: noPrompt} }, 16},
		{"refused", 4, func(int) step { return step{openErr: collector.ErrRejected} }, 16},
		{"failures of the policy in between", 1, func(n int) step {
			if n%2 == 0 {
				return step{runErr: collector.ErrMalformedCall}
			}
			return step{reply: noPrompt}
		}, 32},
		{"another reason in between", 1, func(n int) step {
			if n%3 == 0 {
				return step{runErr: collector.ErrTool}
			}
			return step{reply: noPrompt}
		}, 24},
		{"one sample gave rows", 1, func(n int) step {
			if n == 15 {
				return step{}
			}
			return step{reply: noPrompt}
		}, 0},
		{"the policy", 1, func(int) step { return step{runErr: collector.ErrMalformedCall} }, 0},
		{"overlong", 1, func(int) step { return step{runErr: collector.ErrContextOverflow} }, 0},
		{"the first task alone is bad", 64, func(n int) step {
			if n < 64 {
				return step{reply: noPrompt}
			}
			return step{}
		}, 0},
		{"the first two tasks", 64, func(n int) step { return step{reply: noPrompt} }, 129},
		{"very many of one task", 400, func(n int) step { return step{reply: noPrompt} }, 256},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := -1 // one worker
			b, s := &scripted{script: func(collector.Attempt) step { n++; return tt.step(n) }}, &shelf{atOnce: true}
			c := setup(t, b, s, func(cfg *collector.Config) { cfg.Samples, cfg.Planned = tt.group, samples/tt.group*tt.group })
			err := c.Run(t.Context(), tasks(samples/tt.group))
			b.check(t)
			st := c.Stats()
			identity(t, st)
			if tt.failed == 0 {
				if err != nil || st.Remaining != 0 {
					t.Errorf("ended with %v, %d remain", err, st.Remaining)
				}
				return
			}
			early, ok := errors.AsType[*collector.EarlyFailureError](err)
			if !ok || !errors.Is(err, collector.ErrUnusable) {
				t.Fatalf("ended with %v, want an EarlyFailureError", err)
			}
			if st.Failed != tt.failed || st.Committed != 0 || st.Remaining != st.Planned-tt.failed || len(s.samples) != tt.failed {
				t.Errorf("%d failed, %d remain of %d, %d with the sink; want %d failed and with the sink", st.Failed, st.Remaining, st.Planned, len(s.samples), tt.failed)
			}
			if reason := early.Reason; reason == tokenize.ReasonNoPrompt && !strings.Contains(err.Error(), "samples failed with no_prompt and no sample has a row: ") {
				t.Errorf("error %q", err)
			}
		})
	}
}

// A run with a committed sample of an earlier process does not end early.
func TestBarrenRunWithRows(t *testing.T) {
	t.Parallel()
	b, s := &scripted{script: func(collector.Attempt) step { return step{reply: noPrompt} }}, &shelf{atOnce: true}
	first := true
	c := setup(t, b, s, func(cfg *collector.Config) {
		cfg.Left = func(string) collector.SampleState {
			left := collector.SampleState{Done: first}
			first = false
			return left
		}
	})
	finish(t, c, tasks(100))
	counts(t, c, 1, 99, 0, 0)
}

// A few bad tasks, rejected at once, do not end a run whose good samples take long.
func TestBarrenRunOfSlowSamples(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: func(a collector.Attempt) step {
			if n, _ := strconv.Atoi(a.Task.ID[1:]); n%4 == 0 {
				return step{openErr: collector.ErrRejected}
			}
			return step{takes: time.Minute}
		}}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Endpoints[0].MaxInFlight = 100 })
		finish(t, c, tasks(400))
		counts(t, c, 300, 100, 0, 0)
	})
}
