package collector_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
)

// A source yields tasks until in is closed or the run ends it.
type source struct {
	in    chan *collector.Task
	ended bool
}

func (s *source) tasks(ctx context.Context) iter.Seq2[*collector.Task, error] {
	return func(yield func(*collector.Task, error) bool) {
		defer func() { s.ended = true }()
		for {
			select {
			case t, ok := <-s.in:
				if !ok || !yield(t, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// more gives the collector a source of further tasks.
func (r *rig) more() *source {
	s := &source{in: make(chan *collector.Task, 9)}
	r.cfg.More = s.tasks
	return s
}

// lists returns a Config.More with these tasks and then the error.
func lists(err error, all ...*collector.Task) func(context.Context) iter.Seq2[*collector.Task, error] {
	return func(context.Context) iter.Seq2[*collector.Task, error] {
		return func(yield func(*collector.Task, error) bool) {
			for _, t := range all {
				if !yield(t, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
			}
		}
	}
}

// began fails the test unless the attempts began in the order of these tasks.
func (b *scripted) began(tb testing.TB, ids ...string) {
	tb.Helper()
	var got, want []string
	for _, id := range b.opened {
		got = append(got, id[:strings.LastIndex(id, "-")])
	}
	for _, id := range ids {
		want = append(want, collector.GroupID(task("%s", id)))
	}
	same(tb, "groups of the attempts", got, want...)
}

// Tasks of Config.More begin after the known ones, and the run ends with them.
func TestMore(t *testing.T) {
	bubble(t, func(r *rig) {
		more := r.more()
		r.b.script = always(step{takes: time.Minute})
		r.cfg.Planned, r.cfg.Samples = 4, 2
		wait := r.start(r.Context(), tasks(2))
		for i := range 5 { // all at once: the only worker has t0
			more.in <- task("m%d", i)
		}
		synctest.Wait()
		st := r.c.Stats()
		same(r, "planned, claimed", []int{st.Planned, st.Claimed}, 14, 1)
		time.Sleep(20 * time.Minute)
		r.counts(14, 0, 0, 0)
		more.in <- task("late")
		synctest.Wait()
		r.counts(14, 0, 0, 2)
		close(more.in)
		is(r, "Run", wait(), nil)
		r.counts(16, 0, 0, 0)
		is(r, "source ended", more.ended, true)
		r.b.began(r, "t0", "t0", "t1", "t1", "m0", "m0", "m1", "m1", "m2", "m2", "m3", "m3", "m4", "m4",
			"late", "late")
	})
}

// Every end of a run ends the source of Config.More, even while it waits.
func TestEndsOfMore(t *testing.T) {
	bubbles(t, map[string]error{
		"drain": nil, "stop": context.Canceled, "sink": collector.ErrStorage,
	}, func(r *rig, want error) {
		r.s.err = func(int) error { return errPlain }
		more := r.more()
		c := r.build()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		time.AfterFunc(time.Minute, func() {
			switch want {
			case nil:
				c.Drain()
			case context.Canceled:
				cancel()
			default:
				more.in <- task("m")
			}
		})
		r.fails(ctx, tasks(0), want)
		is(r, "time", r.took, time.Minute)
		is(r, "source ended", more.ended, true)
	})
}

// An error of a source that was asked to end does not count.
func TestMoreEndsWithAnError(t *testing.T) {
	t.Parallel()
	for i := range 40 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.cfg.More = func(ctx context.Context) iter.Seq2[*collector.Task, error] {
				return func(yield func(*collector.Task, error) bool) {
					<-ctx.Done()
					yield(nil, ctx.Err())
				}
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			wait := r.start(ctx, tasks(0))
			synctest.Wait()
			var want error
			if i%2 == 0 {
				want = errPlain
				cancel(errPlain)
			} else {
				r.c.Drain()
			}
			is(r, "Run", wait(), want)
		})
	}
}

func TestDrainLeavesTheBacklog(t *testing.T) {
	bubble(t, func(r *rig) {
		more := r.more()
		r.b.script = always(step{takes: time.Minute})
		wait := r.start(r.Context(), tasks(0))
		for i := range 3 {
			m := task("m%d", i)
			m.Deadline = time.Now().Add(time.Hour)
			more.in <- m
		}
		synctest.Wait()
		r.c.Drain()
		is(r, "Run", wait(), nil)
		r.counts(1, 0, 0, 2)
		time.Sleep(2 * time.Hour) // the deadlines of the remaining samples have no effect any more
		r.counts(1, 0, 0, 2)
	})
}

// An error of the source is returned after its earlier samples are finished.
func TestIncomingError(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = always(step{takes: time.Minute})
		r.cfg.More = lists(errPlain, task("m"))
		r.fails(r.Context(), tasks(1), errPlain).counts(2, 0, 0, 0)
	})
}

// Limit includes the tasks of Config.More.
func TestLimitOfMore(t *testing.T) {
	bubble(t, func(r *rig) {
		more := r.more()
		for i := range cap(more.in) {
			more.in <- task("m%d", i)
		}
		r.cfg.Limit, r.cfg.Samples = 5, 2
		r.finish(tasks(1)).counts(5, 0, 0, 0)
	})
}

// A resumed run takes begun samples first, then samples that no process began, then Config.More.
func TestMoreAfterAResume(t *testing.T) {
	bubble(t, func(r *rig) {
		p := pace.New(pace.Config{MaxLag: -1})
		r.cfg.More, r.cfg.Filtered, r.cfg.Pace = lists(nil, task("m")), 1, p
		r.cfg.Left = lefts(states{"t0-0": {Done: true}, "t2-0": {Attempts: 1}, "t3-0": {Done: true}})
		first := true
		r.cfg.Events.AttemptStarted = func(collector.Attempt, string) {
			if n := p.Stats().Begun; first && n == 0 {
				r.Error("an attempt began of a group that the pacer does not know")
			}
			first = false
		}
		st := r.finish(tasks(4)).counts(4, 0, 0, 0)
		is(r, "filtered", st.Filtered, 1)
		is(r, "earlier", st.Earlier, collector.Earlier{Committed: 1, Filtered: 1})
		s := p.Stats() // it knows the groups that were not whole
		same(r, "begun, whole", []int{s.Begun, s.Whole()}, 3, 0)
		r.b.began(r, "t2", "t1", "m")
	})
}

// Tasks are read ahead up to a bound of their memory.
func TestBacklogIsBounded(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = always(step{takes: time.Minute})
		text := strings.Repeat("x", 30<<20)
		var asked atomic.Int64
		r.cfg.More = func(context.Context) iter.Seq2[*collector.Task, error] {
			return func(yield func(*collector.Task, error) bool) {
				for i := range 6 {
					asked.Add(1)
					if !yield(&collector.Task{ID: fmt.Sprint(i), Messages: []string{text}}, nil) {
						return
					}
				}
			}
		}
		wait := r.start(r.Context(), tasks(0))
		for minute := range 6 {
			synctest.Wait()
			// One is in flight, one is in front of the pacer, two wait, and the next has no room.
			is(r, fmt.Sprint("requested in minute ", minute), int(asked.Load()), min(6, minute+5))
			time.Sleep(time.Minute)
		}
		is(r, "Run", wait(), nil)
	})
}
