package collector_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/tokenize"
)

// deadlines yields the tasks t0, t1, … Each deadline is relative to now; 0: none.
func deadlines(after ...time.Duration) iter.Seq2[*collector.Task, error] {
	now := time.Now()
	return func(yield func(*collector.Task, error) bool) {
		for i, d := range after {
			m := task("t%d", i)
			if d != 0 {
				m.Deadline = now.Add(d)
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

// A slate records when the samples of each task are finished, and whether they were cut.
type slate struct {
	start time.Time
	mu    sync.Mutex
	got   map[string][]string // by task id
}

// slate lets the collector report finished samples to a slate.
func (r *rig) slate() *slate {
	s := &slate{start: time.Now(), got: map[string][]string{}}
	r.cfg.Events.SampleFinished = s.finished
	return s
}

func (s *slate) finished(sample *tokenize.Sample) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	word := "kept"
	if len(sample.Failures) > 0 {
		f := &sample.Failures[0]
		word = f.Class + " in " + f.Stage
		if f.Class == "censored" && !collector.CutAtDeadline(f.Class, f.Error) {
			word += ": " + f.Error
		}
	}
	s.got[sample.TaskID] = append(s.got[sample.TaskID], fmt.Sprintf("%v %s", time.Since(s.start), word))
	return nil
}

// want fails the test unless the samples of the task ended as listed.
func (s *slate) want(tb testing.TB, id string, want ...string) {
	tb.Helper()
	slices.Sort(s.got[id])
	same(tb, id, s.got[id], want...)
}

// A group is whole at its deadline: finished samples stay and the rest is cut, also samples that
// wait for a retry, for room, for a worker, or for the pacer.
func TestDeadline(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = func(a collector.Attempt) step {
			switch {
			case a.Task.ID == "t0" && a.Index == 0:
				return step{takes: time.Minute}
			case a.Task.ID == "t0" && a.Index == 1:
				return step{takes: time.Second, runErr: collector.ErrServer, reply: goodReply}
			}
			return step{takes: time.Hour}
		}
		s := r.slate()
		r.room(4)
		r.cfg.Samples, r.cfg.Retries, r.cfg.MaxFailures = 4, 3, 1
		r.cfg.BackoffMin, r.cfg.BackoffMax = 2*time.Hour, 2*time.Hour
		// t0 and a part of t1 have begun: a sample of t1 has the slot of the finished sample.
		r.finish(deadlines(2*time.Minute, 3*time.Minute, 0))
		s.want(r, "t0", "1m0s kept", "2m0s censored in run", "2m0s censored in run", "2m0s censored in run")
		s.want(r, "t1", slices.Repeat([]string{"3m0s censored in run"}, 4)...)
		s.want(r, "t2", slices.Repeat([]string{"1h3m0s kept"}, 4)...)
		st := r.counts(5, 0, 7, 0)
		same(r, "censored, unstarted", []int{st.Censored, st.Unstarted}, 7, 0)
		for _, sample := range r.s.samples {
			if f := sample.Failures; sample.TaskID == "t0" && sample.Index == 1 && (len(f[0].OutputIDs) != 3 || !strings.Contains(f[0].Error, "; the last attempt failed: ")) {
				r.Errorf("the sample that waited for its retry: %+v", f[0])
			}
		}
	})
}

// Samples that have not begun are cut at their deadline too: behind a busy worker, behind the
// pacer, and behind another task.
func TestDeadlineOfWhatWaits(t *testing.T) {
	bothWays(t, func(r *rig, paced bool) {
		s, more := r.slate(), r.more()
		r.b.script = always(step{takes: time.Hour})
		p := pace.New(pace.Config{MaxAhead: 1, MaxLag: -1})
		held, last := 0, "1h30m0s censored in wait"
		if paced {
			r.room(9)
			r.cfg.Pace = p
			held, last = 5, "1h30m0s censored in run" // both samples of m2 begin after 1h10m
		}
		wait := r.start(r.Context(), deadlines(0, 20*time.Minute))
		for i, d := range []time.Duration{30 * time.Minute, 10 * time.Minute, 90 * time.Minute} {
			m := task("m%d", i)
			m.Samples, m.Deadline = 2, time.Now().Add(d)
			more.in <- m
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		st := r.c.Stats()
		same(r, "skipped, in flight", []int{st.Skipped, st.InFlight}, 2, 1)
		if paced {
			is(r, "held", st.Held, held)
		}
		time.Sleep(time.Hour)
		p.Whole(collector.GroupID(task("t0")), pace.Failed, -1)
		close(more.in)
		is(r, "Run", wait(), nil)
		s.want(r, "t0", "1h0m0s kept")
		s.want(r, "t1", "20m0s censored in wait")
		s.want(r, "m0", "30m0s censored in wait", "30m0s censored in wait")
		s.want(r, "m1", "10m0s censored in wait", "10m0s censored in wait")
		s.want(r, "m2", "1h30m0s censored in run", last)
		is(r, "planned", r.counts(1, 0, 7, 0).Planned, 8)
		for _, sample := range r.s.samples {
			if sample.Attempt != 1 || sample.StartedAt.Before(s.start) || sample.Duration > 2*time.Hour || sample.RolloutID == "" {
				r.Errorf("%s: attempt %d, from %v for %v", sample.TaskID, sample.Attempt, sample.StartedAt, sample.Duration)
			}
		}
	})
}

// A run resumed after the deadline of a group cuts its missing samples at once, including an open
// attempt, and opens no agent for them.
func TestDeadlineThatIsOver(t *testing.T) {
	bothWays(t, func(r *rig, more bool) {
		r.b.script = always(step{takes: time.Minute})
		s := r.slate()
		if more {
			close(r.more().in)
		}
		r.cfg.Left = lefts(states{
			"t0-0": {Done: true}, "t1-0": {Attempts: 2}, "t2-0": openAt("a", 3), "t3-0": openAt("gone", 1),
		})
		r.finish(deadlines(-1, -1, -1, -1, -1, 0))
		r.b.began(r, "t5")
		for _, id := range []string{"t1", "t2", "t3", "t4"} {
			s.want(r, id, "0s censored in wait")
		}
		s.want(r, "t5", "1m0s kept")
		r.counts(2, 0, 4, 0)
		for _, sample := range r.s.samples {
			want := map[string]int32{"t1": 3, "t2": 3, "t3": 1, "t4": 1, "t5": 1}[sample.TaskID]
			is(r, "attempt of "+sample.TaskID, sample.Attempt, want)
		}
	})
}

func TestRetryFailedHasNoDeadline(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = always(step{takes: time.Minute})
		r.cfg.RetryFailed = true
		r.cfg.Left = lefts(states{
			"t0-0": {Failed: collector.ClassCensored}, "t1-0": {Failed: collector.ClassDecode},
		})
		r.finish(deadlines(-1, time.Second)).counts(2, 0, 0, 0)
	})
}

// A deadline cuts a sample that waits for a server that is down.
func TestDeadlineOfWhatWaitsForRoom(t *testing.T) {
	bubble(t, func(r *rig) {
		s := r.slate()
		r.b.script = func(collector.Attempt) step {
			if time.Since(s.start) > time.Minute {
				return step{openErr: collector.ErrConnection}
			}
			return step{takes: 40 * time.Second}
		}
		r.room(4)
		r.cfg.Samples, r.cfg.Outage = 16, 3*time.Hour
		r.finish(deadlines(10*time.Minute)).counts(8, 0, 8, 0)
		for _, end := range s.got["t0"] {
			if !strings.HasSuffix(end, " kept") && !strings.HasPrefix(end, "10m0s censored") {
				r.Errorf("ends %q, want all cut after 10m", s.got["t0"])
			}
		}
	})
}

// A deadline cuts a sample that waits between a server that is down and a full one.
func TestDeadlineBetweenServers(t *testing.T) {
	bubble(t, func(r *rig) {
		s := r.slate()
		r.servers(1, newHost(time.Hour, false, away(time.Minute, never)), newHost(time.Hour, false, nil))
		r.room(3)
		r.cfg.Left = lefts(states{"t0-0": openAt("b", 1)})
		r.finish(deadlines(0, 11*time.Minute, 10*time.Minute, 12*time.Minute)).counts(1, 0, 3, 0)
		s.want(r, "t0", "1h0m0s kept")
		s.want(r, "t1", "11m0s censored in run")
		s.want(r, "t2", "10m0s censored in run")
		s.want(r, "t3", "12m0s censored in run")
	})
}

// Samples cut behind a paused group are freed, so a producer can continue during a long pause.
func TestWhatIsCutIsForgotten(t *testing.T) {
	bubble(t, func(r *rig) {
		more, p := r.more(), pace.New(pace.Config{MaxLag: -1})
		p.Pause()
		r.cfg.Pace = p
		wait := r.start(r.Context(), tasks(0))
		more.in <- task("first")
		var left []weak.Pointer[collector.Task]
		for i := range 100 {
			m := task("m%d", i)
			m.Deadline = time.Now().Add(time.Minute)
			left = append(left, weak.Make(m))
			more.in <- m
		}
		time.Sleep(time.Hour)
		more.in <- task("last") // no goroutine still holds the one before it
		synctest.Wait()
		r.counts(0, 0, 100, 2)
		runtime.GC()
		kept := 0
		for _, m := range left {
			if m.Value() != nil {
				kept++
			}
		}
		within(r, "tasks that were cut and are in the memory", kept, 0, 2)
		p.Resume()
		close(more.in)
		is(r, "Run", wait(), nil)
		r.counts(2, 0, 100, 0)
	})
}

// If the deadline comes while the prompts are fetched, a sample keeps the calls that were not lost:
// no attempt could follow.
func TestDeadlineKeepsKnownCalls(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.prompts = func(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
			time.Sleep(2 * time.Minute)
			return fromTurns(ctx, r)
		}
		r.b.script = always(step{reply: lostOfTwo(collector.ErrConnection)})
		r.cfg.Retries = 3
		st := r.finish(deadlines(time.Minute)).counts(1, 0, 0, 0)
		same(r, "attempts, lost calls, rows", []int{st.Attempts, st.LostCalls, len(r.s.samples[0].Rows)},
			1, 2, 1)
	})
}
