package collector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

func TestRunTakesGroupsInOrder(t *testing.T) {
	bubble(t, func(r *rig) {
		r.s.atOnce = false
		r.cfg.Samples = 2
		r.finish(tasks(3))
		var got []string
		for _, sample := range r.s.samples {
			got = append(got, fmt.Sprintf("%s/%d", sample.TaskID, sample.Index))
		}
		same(r, "order", got, "t0/0", "t0/1", "t1/0", "t1/1", "t2/0", "t2/1")
		st := r.counts(0, 0, 0, 6) // accepted, not committed
		same(r, "accepted, in flight, claimed", []int{st.Accepted, st.InFlight, st.Claimed}, 6, 0, 6)
		r.s.settle(nil)
		r.counts(6, 0, 0, 0)
		is(r, "tail, which waits by default", r.c.Tail(), collector.TailStats{})
		if r.c.Run(r.Context(), tasks(1)) == nil {
			r.Error("second Run = nil, want an error")
		}
	})
}

func TestSampleOwnsItsMemoryAndFacts(t *testing.T) {
	bubble(t, func(r *rig) {
		const takes = 3 * time.Second
		r.b.script = always(step{takes: takes})
		r.cfg.Samples = 2
		start := time.Now()
		r.finish(tasks(1))
		got := r.s.samples[1]
		if len(got.Rows) != 1 {
			r.Fatalf("%d rows, want 1", len(got.Rows))
		}
		row := &got.Rows[0]
		same(r, "input_ids", row.InputIDs, 1, 2, 3, 10, 11, 5, 6, 12)
		same(r, "loss_mask", row.LossMask, 0, 0, 0, 1, 1, 0, 0, 1)
		same(r, "logprobs", row.Logprobs, 0, 0, 0, -1, -2, 0, 0, -3)
		is(r, "grade", row.Grade, tokenize.Exact)
		key := collector.SampleKey(task("t0"), 1)
		equal(r, "sample", got, &tokenize.Sample{
			Key: key, TaskID: "t0", GroupID: strings.TrimSuffix(key, "-1"), RolloutID: key + "/1",
			Index: 1, GroupSize: 2, Attempt: 1, Rows: got.Rows,
			Status: "completed", StopReason: "end_turn", Model: "test/model", AgentID: "agent-1", RunIDs: []string{"run-1"},
			PromptTokens: 10, CompletionTokens: 3, Steps: 2,
			StartedAt: start.Add(takes), Duration: takes, Working: takes,
		})
		st := r.c.Stats()
		same(r, "rows, sampled, trained", []int64{int64(st.Rows), st.Sampled, st.Trained}, 2, 6, 6)
	})
}

// A drain finishes the samples in flight. Waiting samples, and samples whose attempt fails after the
// drain, remain with an unchanged budget.
func TestDrain(t *testing.T) {
	bubbles(t, map[string]int{"one server": 1, "two servers": 2}, func(r *rig, servers int) {
		r.b.script = func(a collector.Attempt) step {
			switch a.Task.ID {
			case "t0":
				return step{openErr: delayed(5 * time.Minute)} // waits for its retry
			case "t1":
				return step{runErr: collector.ErrServer}
			case "t2":
				return step{takes: 90 * time.Second}
			case "t3":
				return step{takes: 80 * time.Second, runErr: collector.ErrConnection}
			}
			return step{takes: time.Hour}
		}
		r.servers(4/servers, []collector.Backend{r.b, r.b}[:servers]...)
		j := r.notes()
		r.cfg.Retries, r.cfg.Planned = 5, 10
		r.cfg.BackoffMin, r.cfg.BackoffMax, r.cfg.RetryAfterMax = 5*time.Minute, 5*time.Minute, time.Hour
		c := r.build()
		time.AfterFunc(time.Minute, c.Drain)
		time.AfterFunc(61*time.Second, c.Drain) // a second call is allowed
		r.finish(tasks(10)).counts(1, 0, 0, 9)
		is(r, "time of the samples in flight", r.took, 90*time.Second)
		j.has(r, "end t0-0/1 rate_limited false", "end t1-0/1 server_error ", "end t3-0/1 connection ")
	})
}

func TestCancelKeepsItsCause(t *testing.T) {
	why := errors.New("second interrupt")
	type stage struct {
		step   step
		scores bool  // the scorer waits
		want   error // nil: the samples have ended
	}
	bubbles(t, map[string]stage{
		"run":   {step{hang: true}, false, why},
		"close": {step{closing: time.Hour}, false, nil},
		"wait":  {step{runErr: collector.ErrBusy}, false, why},
		"score": {step{}, true, why},
	}, func(r *rig, tt stage) {
		r.b.script = always(tt.step)
		r.room(4)
		r.cfg.Retries, r.cfg.CloseTimeout = 5, 2*time.Hour
		r.cfg.BackoffMin, r.cfg.BackoffMax = time.Hour, time.Hour
		if tt.scores {
			r.scorer(func(ctx context.Context) (collector.Reward, error) {
				<-ctx.Done()
				return collector.Reward{}, ctx.Err()
			})
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		time.AfterFunc(time.Minute, func() { cancel(why) })
		if err := r.run(ctx, tasks(10)); tt.want != nil && !errors.Is(err, why) {
			r.Errorf("Run = %v, want %v", err, why)
		}
		for _, sample := range r.s.samples {
			if tt.scores || len(sample.Failures) > 0 {
				r.Errorf("a stop left the sample %+v", sample)
			}
		}
	})
}

func TestSinkFailureEndsTheRun(t *testing.T) {
	bubbles(t, map[string]func(r *rig){
		"append": func(r *rig) {
			r.s.err = func(n int) error {
				if n == 5 {
					return errPlain
				}
				return nil
			}
			r.s.atOnce = false
			r.room(2)
			r.fails(r.Context(), tasks(100), errPlain, collector.ErrStorage)
			r.s.settle(nil)
			r.counts(len(r.s.samples), 0, 0, 100-len(r.s.samples))
		},
		"later": func(r *rig) {
			r.s.atOnce = false
			time.AfterFunc(4500*time.Millisecond, func() { r.s.settle(errPlain) })
			r.fails(r.Context(), tasks(100), errPlain, collector.ErrStorage)
			synctest.Wait() // Run can return before settle has reported its last sample
			is(r, "accepted", r.counts(0, 0, 0, 100).Accepted, 0)
		},
		"failure row": func(r *rig) {
			r.b.script = always(step{runErr: collector.ErrRejected})
			r.s.err = func(int) error { return errPlain }
			r.fails(r.Context(), tasks(100), errPlain, collector.ErrStorage).counts(0, 0, 0, 100)
		},
	}, func(r *rig, test func(r *rig)) {
		r.b.script = always(step{takes: time.Second})
		r.cfg.Planned = 100
		test(r)
	})
}

// A bad task is an error after the samples before it, in a resumed run too.
func TestTaskSourceErrorFinishesWhatIsInFlight(t *testing.T) {
	bothWays(t, func(r *rig, resumed bool) {
		r.b.script = always(step{takes: time.Minute})
		r.room(4)
		if resumed {
			r.cfg.Left = lefts(nil)
		}
		r.fails(r.Context(), lists(errPlain, task("t0"), task("t1"))(r.Context()), errPlain)
		r.counts(2, 0, 0, 0)
	})
}

func TestSkipLimitAndPlanned(t *testing.T) {
	type plan struct {
		planned, limit       int
		left                 bool
		committed, remaining int
	}
	bubbles(t, map[string]plan{
		"unknown plan":  {0, 0, false, 6, 0},
		"known plan":    {6, 0, false, 6, 0},
		"plan too low":  {2, 0, false, 6, 0},
		"plan too high": {8, 0, false, 6, 2},
		"limit":         {6, 4, false, 4, 0},
		"limit above":   {6, 40, false, 6, 0},
		"left done":     {6, 0, true, 6, 0},
	}, func(r *rig, tt plan) {
		r.cfg.Samples, r.cfg.Planned, r.cfg.Limit = 2, tt.planned, tt.limit
		if tt.left {
			r.cfg.Left = func(key string) collector.SampleState {
				return collector.SampleState{Done: strings.HasSuffix(key, "-1")}
			}
		}
		r.finish(tasks(3)).counts(tt.committed, 0, 0, tt.remaining)
	})
}

func TestConfigComplaintsComeTogether(t *testing.T) {
	t.Parallel()
	_, err := collector.New(collector.Config{
		Endpoints: []collector.Endpoint{{Name: "a", MaxInFlight: -1}, {Name: "a", Backend: &scripted{}}},
		Samples:   -1, BackoffMin: time.Minute, BackoffMax: time.Second, RetryFailed: true,
	})
	for _, want := range []string{
		"collector.endpoints[0].backend: must not be nil", "collector.endpoints[0].max_in_flight: -1: must be ≥ 1",
		`collector.endpoints[1].name: "a": duplicate name`, "collector.sink: must not be nil",
		"collector.samples: -1: must not be negative", "collector.backoff_max: 1s: must be at least backoff_min (1m0s)",
		"collector.retry_failed: must be set together with left",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want %q in it", err, want)
		}
	}
}

// A drain ends the survey even if all tasks are done.
func TestDrainEndsTheSurvey(t *testing.T) {
	bubble(t, func(r *rig) {
		r.cfg.Left = func(string) collector.SampleState { return collector.SampleState{Done: true} }
		c, read := r.build(), 0
		r.finish(each(1000, func(i int) {
			if read = i; read == 3 {
				c.Drain()
			}
		}))
		is(r, "the last task that was read", read, 3)
	})
}

// A refusal is a sink's error about one sample.
type refusal struct{ ours bool }

func (r refusal) Error() string { return "row 0: mask 1 with NaN" }
func (r refusal) Refused() bool { return r.ours }

// A sample that the sink refuses because of its content becomes a failure with its tokens, and the
// other samples continue.
func TestRefusedSampleIsAFailure(t *testing.T) {
	bubble(t, func(r *rig) {
		var finished []collector.Result
		var complete, accepted []string
		r.s.err = func(n int) error {
			if n == 1 {
				return fmt.Errorf("sample: %w", refusal{true})
			}
			return nil
		}
		r.cfg.Events.AttemptFinished = func(r collector.Result) { finished = append(finished, r) }
		r.cfg.Events.SampleFinished = func(s *tokenize.Sample) func() {
			what := fmt.Sprintf("%d rows, %d failures", len(s.Rows), len(s.Failures))
			complete = append(complete, what)
			return func() { accepted = append(accepted, what) }
		}
		r.finish(tasks(3))
		good, failure := "1 rows, 0 failures", "0 rows, 1 failures"
		same(r, "complete", complete, good, good, failure, good)
		same(r, "accepted", accepted, good, failure, good)
		st := r.counts(2, 1, 0, 0)
		f := r.s.samples[1].Failures[0]
		if f.Class != "internal" || f.Stage != "append" || !strings.Contains(f.Error, "mask 1 with NaN") || len(f.OutputIDs) != 3 {
			r.Errorf("failure %+v", f)
		}
		is(r, "class of the attempt", finished[1].Class, collector.ClassInternal)
		is(r, "its trained tokens", finished[1].Trained, 0)
		is(r, "trained tokens", st.Trained, 2*finished[0].Trained)
	})
}

// A refused failure, or an error whose Refused is false, ends the run: the sample would be lost.
func TestOtherRefusalsEndTheRun(t *testing.T) {
	cases := map[string]refusal{"not the sample's fault": {false}, "the failure as well": {true}}
	bubbles(t, cases, func(r *rig, all refusal) {
		r.s.err = func(int) error { return all }
		r.fails(r.Context(), tasks(3), collector.ErrStorage, all)
	})
}
