package collector_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

func TestRetryFailedMendsOnlyFailures(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = except("t2", step{runErr: collector.ErrServer}, step{takes: time.Second})
		var kinds []string
		r.notes()
		r.cfg.RetryFailed, r.cfg.Planned, r.cfg.MaxFailures, r.cfg.Retries = true, 6, 4, 1
		r.cfg.Left = lefts(states{
			"t0-0": {Done: true, Attempts: 1}, "t1-0": {Failed: collector.ClassMalformedCall, Attempts: 2, Charged: 9},
			"t2-0": {Failed: collector.ClassTimeoutTotal, Attempts: 3, Charged: 4}, "t3-0": {Attempts: 1},
			"t4-0": {Failed: collector.ClassCensored, Attempts: 1},
		})
		r.cfg.Events.AttemptStarted = func(a collector.Attempt, _ string) {
			kinds = append(kinds, a.Kind.String())
		}
		r.build()
		go func() {
			time.Sleep(500 * time.Millisecond)
			r.counts(1, 1, 1, 3) // t1 is being retried; t3 and t5 remain
			time.Sleep(time.Second)
			r.counts(2, 0, 1, 3) // t2 is being retried
		}()
		st := r.finish(tasks(6)).counts(3, 1, 0, 2)
		is(r, "earlier", st.Earlier, collector.Earlier{Committed: 1})
		is(r, "server errors", st.ByClass[collector.ClassServerError], 1)
		same(r, "kinds", kinds, "data_retry", "infra_retry", "infra_retry", "infra_retry")
		is(r, "attempt of t1", r.s.samples[0].Attempt, 3)
	})
}

func TestCancelledRetryKeepsFailure(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = always(step{hang: true})
		r.cfg.RetryFailed = true
		r.room(2)
		r.cfg.Left = lefts(states{
			"t0-0": {Failed: collector.ClassDecode}, "t1-0": {Failed: collector.ClassCensored},
		})
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		r.fails(ctx, tasks(2), context.DeadlineExceeded)
		is(r, "earlier", r.counts(0, 1, 1, 0).Earlier, collector.Earlier{Failed: 1, Skipped: 1})
	})
}

// Budgets continue where an earlier process left them.
func TestBudgetsContinue(t *testing.T) {
	type state = collector.SampleState
	type budget struct {
		left     state
		err      error
		attempts int
	}
	bubbles(t, map[string]budget{
		"none used":                    {state{}, collector.ErrServer, 3},
		"one retry used":               {state{Attempts: 1, Charged: 1}, collector.ErrServer, 2},
		"all retries used":             {state{Attempts: 5, Charged: 2}, collector.ErrServer, 1},
		"one data retry used":          {state{Attempts: 1, DataCharged: 1}, collector.ErrAgent, 3},
		"retries are not data retries": {state{Attempts: 2, Charged: 2}, collector.ErrAgent, 4},
		"what no roll mends":           {state{}, collector.ErrNoTurns, 1},
	}, func(r *rig, tt budget) {
		r.b.script = except("t0", step{}, step{runErr: tt.err})
		r.cfg.Retries, r.cfg.DataRetries = 2, 3
		r.cfg.Left = lefts(states{"t0-0": {Attempts: 1}, "t1-0": tt.left})
		is(r, "attempts", r.finish(tasks(2)).counts(1, 1, 0, 0).Attempts, 1+tt.attempts)
	})
}

// Tasks are read only as often and as far as needed.
func TestHowOftenTasksAreRead(t *testing.T) {
	type reading struct {
		left func(string) collector.SampleState
		want int
	}
	bubbles(t, map[string]reading{
		"no lookup":    {nil, 1},
		"nothing left": {lefts(nil), 2},
		"all done":     {func(string) collector.SampleState { return collector.SampleState{Done: true} }, 1},
		"all begun":    {func(string) collector.SampleState { return collector.SampleState{Attempts: 1} }, 2},
		"some begun":   {lefts(states{"t1-0": {Attempts: 1}}), 3},
	}, func(r *rig, tt reading) {
		reads := 0
		var source iter.Seq2[*collector.Task, error] = func(yield func(*collector.Task, error) bool) {
			reads++
			tasks(4)(yield)
		}
		r.cfg.Left = tt.left
		r.finish(source)
		is(r, "reads", reads, tt.want)
		r.counts(4, 0, 0, 0)
	})
}

func TestOpenAttemptsFirstThenBegunGroups(t *testing.T) {
	bubble(t, func(r *rig) {
		slow := always(step{takes: time.Second})
		a, b := &revived{scripted: &scripted{script: slow}}, &revived{scripted: &scripted{script: slow}}
		r.servers(1, a, b)
		j := r.notes()
		r.cfg.Samples, r.cfg.Planned = 2, 14
		r.cfg.Left = lefts(states{
			"t1-0": {Done: true},
			"t3-1": openAt("b", 2), "t4-0": openAt("a", 1), "t4-1": openAt("elsewhere", 3),
			"t5-0": {Attempts: 2, Charged: 1}, "t6-0": {Failed: collector.ClassAgentError},
		})
		var late []string
		r.cfg.Events.Reattached = func(a collector.Attempt, _ string, err error) {
			if err != nil && errors.Is(err, collector.ErrGone) {
				late = append(late, collector.RolloutID(taskOf(a.Key), a.N))
			}
		}
		r.finish(tasks(7))
		var got []string
		for _, sample := range r.s.samples {
			got = append(got, fmt.Sprintf("%s/%d", taskOf(sample.Key), sample.Attempt))
			// All answers were received.
			is(r, "reattached flag of "+taskOf(sample.Key), sample.Rows[0].Flags&tokenize.FlagReattached, 0)
		}
		// Two at a time: the order within a pair depends on the goroutines.
		for i := 0; i+1 < len(got); i += 2 {
			slices.Sort(got[i : i+2])
		}
		same(r, "order", got,
			"t3-1/2", "t4-0/1", "t1-1/1", "t4-1/4", "t3-0/1", "t5-0/3", "t5-1/1", "t6-1/1",
			"t0-0/1", "t0-1/1", "t2-0/1", "t2-1/1")
		if len(a.reattached) != 1 || len(b.reattached) != 1 || b.reattached[0].N != 2 || b.was[0].Kind != collector.KindReattach {
			r.Errorf("reattached at a: %+v, at b: %+v", a.reattached, b.reattached)
		}
		st := r.counts(13, 1, 0, 0)
		is(r, "earlier", st.Earlier, collector.Earlier{Committed: 1, Failed: 1})
		is(r, "earlier agent errors", st.ByClass[collector.ClassAgentError], 1)
		same(r, "reattached, gone, attempts", []int{st.Reattached, st.Gone, st.Attempts}, 2, 1, 12)
		same(r, "retries, infra retries", []int{st.Retries, st.InfraRetries}, 2, 2)
		same(r, "gone", late, "t4-1/3")
		// Entries of the process that made the attempt are not written again.
		for _, line := range []string{"begin t3-1/2 reattach at b", "run t3-1/2 run-old"} {
			if slices.Contains(j.lines, line) {
				r.Errorf("journal has %q", line)
			}
		}
		j.has(r, "run t3-1/2 run-new", "end t3-1/2 none false", "end t4-1/3 lost false",
			"begin t4-1/4 infra_retry", "begin t5-0/3 infra_retry", "begin t6-1/1 first")
	})
}

// An attempt that cannot be taken over costs nothing, and is made again at once under the next
// number.
func TestGoneCostsNothing(t *testing.T) {
	bubbles(t, map[string]step{
		"nothing is there":         {openErr: fmt.Errorf("no agent: %w", collector.ErrGone)},
		"not every token is there": {runErr: fmt.Errorf("no trace: %w", collector.ErrGone)},
	}, func(r *rig, gone step) {
		r.revived().script = func(a collector.Attempt) step {
			if a.Kind == collector.KindReattach {
				return gone
			}
			return step{}
		}
		j := r.notes()
		r.cfg.Left = lefts(states{"t0-0": openAt("a", 4)})
		st := r.finish(tasks(1)).counts(1, 0, 0, 0)
		same(r, "gone, reattached, attempt", []int{st.Gone, st.Reattached, int(r.s.samples[0].Attempt)},
			1, 0, 5)
		is(r, "time", r.took, 0)
		j.has(r, "end t0-0/4 lost false")
	})
}

// A server that is away during a takeover does not cost the attempt: the lookup is retried until
// the server is back.
func TestReattachWaitsForItsServer(t *testing.T) {
	bubble(t, func(r *rig) {
		start := time.Now()
		b := r.revived()
		b.script = func(collector.Attempt) step {
			if away := time.Since(start); away > time.Second && away < 20*time.Second {
				return step{openErr: collector.ErrConnection}
			}
			return step{takes: time.Second}
		}
		j := r.notes()
		r.cfg.Retries = 3
		r.cfg.Left = lefts(states{
			"t0-0": openAt("a", 1), "t1-0": openAt("a", 2), "t2-0": openAt("a", 1),
		})
		st := r.finish(tasks(3)).counts(3, 0, 0, 0)
		same(r, "reattached, gone, retries", []int{st.Reattached, st.Gone, st.Retries}, 3, 0, 0)
		within(r, "lookups", len(b.reattached), 5, 100)
		for _, line := range j.lines {
			if strings.HasPrefix(line, "begin") || strings.HasPrefix(line, "end") && !strings.HasSuffix(line, "none false") {
				r.Errorf("journal has %q", line)
			}
		}
	})
}

// If a reattached attempt fails, the next attempt is a new one.
func TestReattachedAttemptFails(t *testing.T) {
	bubble(t, func(r *rig) {
		b := r.revived()
		b.script = func(a collector.Attempt) step {
			if a.Task.ID == "t1" && a.Kind == collector.KindReattach {
				return step{runErr: collector.ErrServer}
			}
			return step{}
		}
		j := r.notes()
		r.cfg.Retries = 1
		r.cfg.Left = lefts(states{"t0-0": openAt("a", 1), "t1-0": openAt("a", 3)})
		st := r.finish(tasks(2)).counts(2, 0, 0, 0)
		same(r, "reattached, lookups, gone", []int{st.Reattached, len(b.reattached), st.Gone}, 1, 2, 0)
		is(r, "infra retries", st.InfraRetries, 1)
		is(r, "attempt", r.s.samples[1].Attempt, 4)
		j.has(r, "end t1-0/3 server_error true", "begin t1-0/4 infra_retry at a")
	})
}

func TestOpenAttemptsOfLostEndpoint(t *testing.T) {
	bubble(t, func(r *rig) {
		r.servers(2, r.revived(), &revived{scripted: new(scripted)})
		r.b.script = always(step{openErr: collector.ErrConnection})
		left := states{}
		for i := range 8 {
			left[fmt.Sprintf("t%d-0", i)] = openAt("a", 2)
		}
		r.cfg.Left, r.cfg.Planned, r.cfg.Outage = lefts(left), 10, time.Minute
		st := r.finish(tasks(10)).counts(10, 0, 0, 0)
		same(r, "gone, reattached", []int{st.Gone, st.Reattached}, 8, 0)
		is(r, "lost", st.Endpoints[0].Lost, true)
	})
}
