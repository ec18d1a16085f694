package collector_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
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
	const samples = 400
	barren := step{reply: noPrompt}
	policy := step{runErr: collector.ErrMalformedCall}
	type failing struct {
		group  int // samples of a task
		step   func(n int) step
		failed int // samples that failed when the run ends; 0: it finishes
	}
	all := func(st step) func(int) step { return func(int) step { return st } }
	every := func(k int, st step) func(int) step {
		return func(n int) step {
			if n%k == 0 {
				return st
			}
			return barren
		}
	}
	bubbles(t, map[string]failing{
		"no prompt is known":                {1, all(barren), 16},
		"refused":                           {4, all(step{openErr: collector.ErrRejected}), 16},
		"failures of the policy in between": {1, every(2, policy), 32},
		"another reason in between":         {1, every(3, step{runErr: collector.ErrTool}), 24},
		"the policy":                        {1, all(policy), 0},
		"overlong":                          {1, all(step{runErr: collector.ErrContextOverflow}), 0},
		"the first two tasks":               {64, all(barren), 129},
		"very many of one task":             {400, all(barren), 256},
		"one sample gave rows": {1, func(n int) step {
			if n == 15 {
				return step{}
			}
			return barren
		}, 0},
		"the first task alone is bad": {64, func(n int) step {
			if n < 64 {
				return barren
			}
			return step{}
		}, 0},
	}, func(r *rig, tt failing) {
		n := -1 // one worker
		r.b.script = func(collector.Attempt) step { n++; return tt.step(n) }
		r.cfg.Samples, r.cfg.Planned = tt.group, samples/tt.group*tt.group
		err := r.run(r.Context(), tasks(samples/tt.group))
		st := r.c.Stats()
		if tt.failed == 0 {
			is(r, "Run", err, nil)
			is(r, "remaining", st.Remaining, 0)
			return
		}
		early, ok := errors.AsType[*collector.EarlyFailureError](err)
		if !ok || !errors.Is(err, collector.ErrUnusable) {
			r.Fatalf("ended with %v, want an EarlyFailureError", err)
		}
		r.counts(0, tt.failed, 0, st.Planned-tt.failed)
		is(r, "samples with the sink", len(r.s.samples), tt.failed)
		const text = "samples failed with no_prompt, and no sample produced a row: "
		if early.Reason == tokenize.ReasonNoPrompt && !strings.Contains(err.Error(), text) {
			r.Errorf("error %q", err)
		}
	})
}

// If the command of a run makes no call at all, the run ends before the retries. No sample is lost.
func TestBrokenCommand(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = always(step{runErr: collector.ErrNoCalls, takes: time.Second})
		r.room(20)
		r.cfg.Retries, r.cfg.Planned = 3, 100
		log := r.watch()
		early, ok := errors.AsType[*collector.EarlyFailureError](r.run(r.Context(), tasks(100)))
		if !ok || early.Class != collector.ClassNoCalls {
			r.Fatalf("ended with %v, want an EarlyFailureError", early)
		}
		r.counts(0, 0, 0, 100)
		same(r, "samples, attempts", []int{early.Samples, len(r.b.opened)}, 20, 20)
		same(r, "events", *log)
	})
}

// A command that makes no call, or is too slow, is not an outage of the server.
func TestFailuresOfTheCommand(t *testing.T) {
	bubbles(t, map[string]error{
		"no calls": collector.ErrNoCalls,
		"too slow": fmt.Errorf("%w: it did not end within 20m", collector.ErrOutOfTime),
	}, func(r *rig, err error) {
		r.b.script = except("t0", step{}, step{runErr: err, takes: time.Minute}) // one row, so that the run continues
		r.room(8)
		r.cfg.Retries = 1
		log := r.watch()
		r.finish(tasks(30)).counts(1, 29, 0, 0)
		is(r, "attempts", len(r.b.opened), 1+2*29)
		same(r, "events", *log)
	})
}

// A run with a committed sample of an earlier process does not end early.
func TestBarrenRunWithRows(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = always(step{reply: noPrompt})
		r.cfg.Left = lefts(states{"t0-0": {Done: true}})
		r.finish(tasks(100)).counts(1, 99, 0, 0)
	})
}

// A few bad tasks, rejected at once, do not end a run whose good samples take long.
func TestBarrenRunOfSlowSamples(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = func(a collector.Attempt) step {
			if number(a)%4 == 0 {
				return step{openErr: collector.ErrRejected}
			}
			return step{takes: time.Minute}
		}
		r.room(100)
		r.finish(tasks(400)).counts(300, 100, 0, 0)
	})
}
