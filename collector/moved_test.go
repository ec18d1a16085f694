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

var errTaken = fmt.Errorf("partition 7: %w", collector.ErrMoved)

// A fleetSink reports the samples of task t1 as moved, at the given moment.
type fleetSink struct {
	*shelf
	when string
}

func (f *fleetSink) Append(ctx context.Context, s *tokenize.Sample, done func(error)) error {
	switch {
	case s.TaskID != "t1" || f.when == "admit":
	case f.when == "append":
		return errTaken
	default:
		own := done
		done = func(error) { own(errTaken) }
	}
	return f.shelf.Append(ctx, s, done)
}

func (f *fleetSink) admit(_ context.Context, a collector.Attempt) error {
	if a.Task.ID == "t1" && f.when == "admit" {
		return errTaken
	}
	return nil
}

// The run drops a sample that another process has, whenever it finds out. It does not retry the sample,
// and no agent is left. The other samples are collected.
func TestMovedSample(t *testing.T) {
	type moved struct {
		when   string
		failed bool // the attempts of the sample fail
	}
	cases := map[string]moved{}
	for _, when := range []string{"admit", "append", "done"} {
		cases[when] = moved{when, false}
		cases[when+", failed"] = moved{when, true}
	}
	bubbles(t, cases, func(r *rig, tt moved) {
		sink := &fleetSink{shelf: r.s, when: tt.when}
		r.cfg.Sink, r.cfg.Admit, r.cfg.Retries = sink, sink.admit, 3
		if tt.failed {
			r.b.script = except("t1", step{runErr: collector.ErrRejected}, step{})
		}
		log := r.notes()
		st := r.finish(tasks(3)).counts(2, 0, 0, 0)
		same(r, "moved, planned, accepted", []int{st.Moved, st.Planned, st.Accepted}, 1, 2, 0)
		begun := !slices.Contains(r.b.opened, keyOf(1, 0)+"/1")
		is(r, "no attempt was made", begun, tt.when == "admit")
		for _, line := range log.lines {
			if line == "begin t1-0/1 first at a" {
				log.has(r, "end t1-0/1 ")
			}
			if line == "begin t1-0/2 infra_retry at a" {
				r.Error("the sample was retried")
			}
		}
	})
}

// An attempt waits until Admit allows it. A drain, a deadline and a stop end the wait.
func TestAdmitWaits(t *testing.T) {
	until := func(ctx context.Context, _ collector.Attempt) error {
		<-ctx.Done()
		return fmt.Errorf("admit: %w", context.Cause(ctx))
	}
	bubbles(t, map[string]func(r *rig){
		"allowed": func(r *rig) {
			r.cfg.Admit = func(context.Context, collector.Attempt) error { time.Sleep(time.Minute); return nil }
			r.finish(tasks(2)).counts(2, 0, 0, 0)
			is(r, "took", r.took, 2*time.Minute)
		},
		"drained": func(r *rig) {
			r.cfg.Admit = until
			wait := r.start(r.Context(), tasks(2))
			synctest.Wait()
			r.c.Drain()
			is(r, "error", wait(), nil)
			is(r, "attempts", r.counts(0, 0, 0, 2).Attempts, 0)
		},
		"cut": func(r *rig) {
			r.cfg.Admit = until
			r.finish(deadlines(time.Minute)).counts(0, 0, 1, 0)
			is(r, "took", r.took, time.Minute)
		},
		"stopped": func(r *rig) {
			r.cfg.Admit = until
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			r.fails(ctx, tasks(2), context.DeadlineExceeded)
		},
		"failed": func(r *rig) {
			r.cfg.Admit = func(context.Context, collector.Attempt) error { return errPlain }
			r.fails(r.Context(), tasks(2), errPlain).counts(0, 0, 0, 2)
		},
	}, func(r *rig, test func(r *rig)) { test(r) })
}

// The samples of a task that arrives during the run can be in the dataset already.
func TestLeftOfMore(t *testing.T) {
	bubble(t, func(r *rig) {
		r.cfg.Samples = 3
		r.cfg.Left = lefts(states{
			"t1-0": {Done: true, Attempts: 1}, "t1-1": {Failed: collector.ClassDecode, Attempts: 1}, "t1-2": {Attempts: 4},
		})
		r.cfg.More = lists(nil, task("t1"))
		st := r.finish(tasks(1)).counts(5, 1, 0, 0)
		is(r, "earlier", st.Earlier, collector.Earlier{Committed: 1, Failed: 1})
		is(r, "attempt of t1-2", r.s.samples[3].Attempt, 5)
	})
}
