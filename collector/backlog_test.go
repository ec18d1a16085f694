package collector_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
)

// stream yields the tasks of in until in is closed or ctx ends. It sets ended when it returns.
func stream(in <-chan *collector.Task, ended *bool) func(context.Context) iter.Seq2[*collector.Task, error] {
	return func(ctx context.Context) iter.Seq2[*collector.Task, error] {
		return func(yield func(*collector.Task, error) bool) {
			defer func() { *ended = true }()
			for {
				select {
				case t, ok := <-in:
					if !ok || !yield(t, nil) {
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}
	}
}

func task(format string, args ...any) *collector.Task {
	return &collector.Task{ID: fmt.Sprintf(format, args...), Messages: []string{"hello"}}
}

// run starts Run and returns a function that waits for it.
func run(ctx context.Context, c *collector.Collector, known iter.Seq2[*collector.Task, error]) (wait func() error) {
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, known) }()
	return func() error { return <-done }
}

func (b *scripted) groups() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range b.opened {
		all = append(all, id[:strings.LastIndex(id, "-")])
	}
	return all
}

// Tasks of Config.More begin after the known ones, and the run ends with them.
func TestMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, ended := make(chan *collector.Task), false
		b := &scripted{script: func(collector.Attempt) step { return step{takes: time.Minute} }}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.More, cfg.Planned, cfg.Samples = stream(in, &ended), 4, 2
		})
		wait := run(t.Context(), c, tasks(2))
		for i := range 5 { // all at once: the only worker has t0
			in <- task("m%d", i)
		}
		synctest.Wait()
		if st := c.Stats(); st.Planned != 14 || st.Claimed != 1 {
			t.Errorf("planned %d, claimed %d, want 14 and 1", st.Planned, st.Claimed)
		}
		time.Sleep(20 * time.Minute)
		counts(t, c, 14, 0, 0, 0)
		in <- task("late")
		synctest.Wait()
		counts(t, c, 14, 0, 0, 2)
		close(in)
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		b.check(t)
		counts(t, c, 16, 0, 0, 0)
		var want []string
		for _, id := range []string{"t0", "t1", "m0", "m1", "m2", "m3", "m4", "late"} {
			g := collector.GroupID(task("%s", id))
			want = append(want, g, g)
		}
		if got := b.groups(); !slices.Equal(got, want) || !ended {
			t.Errorf("opened %v, want %v", got, want)
		}
	})
}

// Every end of a run ends the source of Config.More, even while it waits.
func TestEndsOfMore(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	for _, tt := range []struct {
		name string
		end  func(c *collector.Collector, cancel context.CancelFunc, in chan<- *collector.Task)
		sink error
		want error
	}{
		{"drain", func(c *collector.Collector, _ context.CancelFunc, _ chan<- *collector.Task) { c.Drain() }, nil, nil},
		{"stop", func(_ *collector.Collector, cancel context.CancelFunc, _ chan<- *collector.Task) { cancel() }, nil, context.Canceled},
		{"sink", func(_ *collector.Collector, _ context.CancelFunc, in chan<- *collector.Task) { in <- task("m") }, full, collector.ErrStorage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, ended := make(chan *collector.Task), false
				c := setup(t, &scripted{}, &shelf{atOnce: true, err: func(n int) error { return tt.sink }}, func(cfg *collector.Config) {
					cfg.More = stream(in, &ended)
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				wait := run(ctx, c, tasks(0))
				synctest.Wait()
				start := time.Now()
				tt.end(c, cancel, in)
				if err := wait(); !errors.Is(err, tt.want) {
					t.Errorf("Run = %v, want %v", err, tt.want)
				}
				if !ended || time.Since(start) != 0 {
					t.Errorf("ended %v after %v, want at once", ended, time.Since(start))
				}
				identity(t, c.Stats())
			})
		})
	}
}

// An error of a source that was asked to end does not count.
func TestMoreEndsWithAnError(t *testing.T) {
	t.Parallel()
	for i := range 40 {
		synctest.Test(t, func(t *testing.T) {
			c := setup(t, &scripted{}, &shelf{atOnce: true}, func(cfg *collector.Config) {
				cfg.More = func(ctx context.Context) iter.Seq2[*collector.Task, error] {
					return func(yield func(*collector.Task, error) bool) {
						<-ctx.Done()
						yield(nil, ctx.Err())
					}
				}
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			wait := run(ctx, c, tasks(0))
			synctest.Wait()
			var want error
			if i%2 == 0 {
				want = errPlain
				cancel(errPlain)
			} else {
				c.Drain()
			}
			if err := wait(); err != want {
				t.Fatalf("Run = %v, want %v", err, want)
			}
		})
	}
}

func TestDrainLeavesTheBacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, ended := make(chan *collector.Task), false
		b := &scripted{script: func(collector.Attempt) step { return step{takes: time.Minute} }}
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.More = stream(in, &ended) })
		wait := run(t.Context(), c, tasks(0))
		for i := range 3 {
			m := task("m%d", i)
			m.Deadline = time.Now().Add(time.Hour)
			in <- m
		}
		synctest.Wait()
		c.Drain()
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		counts(t, c, 1, 0, 0, 2)
		time.Sleep(2 * time.Hour) // the deadlines of the remaining samples have no effect any more
		counts(t, c, 1, 0, 0, 2)
	})
}

// An error of the source is returned after its earlier samples are finished. Limit includes the
// tasks of Config.More.
func TestIncomingError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := setup(t, &scripted{script: func(collector.Attempt) step { return step{takes: time.Minute} }}, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.More = func(context.Context) iter.Seq2[*collector.Task, error] {
				return func(yield func(*collector.Task, error) bool) {
					_ = yield(task("m"), nil) && yield(nil, errPlain)
				}
			}
		})
		fails(t.Context(), t, c, tasks(1), errPlain)
		counts(t, c, 2, 0, 0, 0)

		in, ended := make(chan *collector.Task, 9), false
		for i := range cap(in) {
			in <- task("m%d", i)
		}
		c = setup(t, &scripted{}, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.More, cfg.Limit, cfg.Samples = stream(in, &ended), 5, 2
		})
		finish(t, c, tasks(1))
		counts(t, c, 5, 0, 0, 0)
	})
}

// A resumed run takes begun samples first, then samples that no process began, then Config.More.
func TestMoreAfterAResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, ended := make(chan *collector.Task, 1), false
		in <- task("m")
		close(in)
		b, p := &scripted{}, pace.New(pace.Config{MaxLag: -1})
		c := setup(t, b, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.More, cfg.Filtered, cfg.Pace = stream(in, &ended), 1, p
			cfg.Left = lefts(map[string]collector.SampleState{"t0-0": {Done: true}, "t2-0": {Attempts: 1}, "t3-0": {Done: true}})
			first := true
			cfg.Events.AttemptStarted = func(collector.Attempt, string) {
				if n := p.Stats().Begun; first && n == 0 {
					t.Error("an attempt began of a group that the pacer does not know")
				}
				first = false
			}
		})
		finish(t, c, tasks(4))
		st := counts(t, c, 4, 0, 0, 0)
		if st.Filtered != 1 || st.Earlier != (collector.Earlier{Committed: 1, Filtered: 1}) {
			t.Errorf("filtered %d, earlier %+v", st.Filtered, st.Earlier)
		}
		if s := p.Stats(); s.Begun != 3 || s.Whole() != 0 {
			t.Errorf("the pacer knows of %d groups, want those that were not whole, 3", s.Begun)
		}
		var want []string
		for _, id := range []string{"t2", "t1", "m"} {
			want = append(want, collector.GroupID(task("%s", id)))
		}
		if got := b.groups(); !slices.Equal(got, want) {
			t.Errorf("opened %v, want %v", got, want)
		}
	})
}

// Tasks are read ahead up to a bound of their memory.
func TestBacklogIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("x", 30<<20)
		var asked atomic.Int64
		c := setup(t, &scripted{script: func(collector.Attempt) step { return step{takes: time.Minute} }}, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.More = func(context.Context) iter.Seq2[*collector.Task, error] {
				return func(yield func(*collector.Task, error) bool) {
					for i := range 6 {
						asked.Add(1)
						if !yield(&collector.Task{ID: fmt.Sprint(i), Messages: []string{text}}, nil) {
							return
						}
					}
				}
			}
		})
		wait := run(t.Context(), c, tasks(0))
		for minute := range 6 {
			synctest.Wait()
			// One is in flight, one is in front of the pacer, two wait, and the next has no room.
			if want, asked := min(6, minute+5), int(asked.Load()); asked != want {
				t.Errorf("minute %d: %d tasks requested, want %d", minute, asked, want)
			}
			time.Sleep(time.Minute)
		}
		if err := wait(); err != nil {
			t.Fatal(err)
		}
	})
}
