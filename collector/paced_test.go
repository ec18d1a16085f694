package collector_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/tokenize"
)

// A judge is a sink that commits whole groups, like a dataset with whole groups. It filters the
// groups of trivial tasks, and reports groups to the collector and the pacer.
type judge struct {
	t       *testing.T
	c       *collector.Collector
	p       *pace.Pacer
	trivial func(taskID string) bool
	given   func(g *judged)

	mu     sync.Mutex
	groups map[string]*judged
	keys   map[string]int // number of Appends per sample
}

// A judged is a group in the judge.
type judged struct {
	id, task string
	samples  []*tokenize.Sample
	done     []func(error)
	arrival  pace.Arrival
}

func (j *judge) Append(_ context.Context, s *tokenize.Sample, done func(error)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.groups == nil {
		j.groups, j.keys = map[string]*judged{}, map[string]int{}
	}
	j.keys[s.Key]++
	g := j.groups[s.GroupID]
	if g == nil {
		g = &judged{id: s.GroupID, task: s.TaskID}
		j.groups[s.GroupID] = g
	}
	g.samples, g.done = append(g.samples, s), append(g.done, done)
	if len(g.samples) < int(s.GroupSize) {
		return nil
	}
	rows, outcome := 0, pace.Given
	var keys []string
	for _, s := range g.samples {
		rows += len(s.Rows)
		keys = append(keys, s.Key)
	}
	switch {
	case rows == 0:
		outcome = pace.Failed
	case j.trivial != nil && j.trivial(g.task):
		outcome = pace.Filtered
		j.c.Filter(keys...)
	}
	for _, done := range g.done {
		done(nil)
		identity(j.t, j.c.Stats())
	}
	if j.p != nil {
		g.arrival = j.p.Whole(g.id, outcome, -1)
	}
	if outcome == pace.Given && j.given != nil {
		j.given(g)
	}
	return nil
}

// mostly returns a function that is true for this share of the names.
func mostly(share float64) func(string) bool {
	return func(name string) bool {
		h := fnv.New64a()
		h.Write([]byte(name))
		return rand.New(rand.NewPCG(h.Sum64(), 7)).Float64() < share
	}
}

// A run that needs N informative groups, with mostly trivial tasks, begins about as many groups as
// needed. Trivial samples count as filtered, unneeded ones as skipped.
func TestUntilGroups(t *testing.T) {
	t.Parallel()
	const groups, size, need = 1000, 4, 60
	for _, more := range []bool{false, true} {
		t.Run(fmt.Sprintf("more=%v", more), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, 2))
				var mu sync.Mutex
				b := &scripted{script: func(a collector.Attempt) step {
					mu.Lock()
					defer mu.Unlock()
					s := step{takes: time.Duration(1+rng.IntN(60)) * time.Second}
					if a.Task.ID == "t3" || a.Task.ID == "t8" && a.Index == 1 {
						s.runErr = collector.ErrRejected
					}
					return s
				}}
				p := pace.New(pace.Config{UntilGroups: need, MaxLag: -1})
				j := &judge{t: t, p: p, trivial: mostly(0.6)}
				j.given = func(g *judged) { p.Acknowledged(g.id) }
				ended := false
				c := setup(t, b, j, func(cfg *collector.Config) {
					cfg.Samples, cfg.Pace, cfg.Endpoints[0].MaxInFlight = size, p, 64
					if !more {
						cfg.Planned = groups * size
						return
					}
					cfg.More = func(ctx context.Context) iter.Seq2[*collector.Task, error] {
						return func(yield func(*collector.Task, error) bool) {
							defer func() { ended = true }()
							for m := range tasks(groups) {
								if !yield(m, nil) {
									return
								}
							}
							<-ctx.Done() // more tasks can come
						}
					}
				})
				j.c = c
				known := tasks(groups)
				if more {
					known = tasks(0)
				}
				finish(t, c, known)
				b.check(t)
				st := c.Stats()
				identity(t, st)
				s := st.Pace
				if s.Informative < need || s.Informative > need+16 || s.Begun > need*10/4*5/4 || s.Filtered < need || s.Failed != 1 {
					t.Errorf("%d informative, %d filtered, %d failed of %d groups", s.Informative, s.Filtered, s.Failed, s.Begun)
				}
				// One sample of a group with rows failed.
				if filtered := s.Filtered * size; st.Filtered != filtered && st.Filtered != filtered-1 {
					t.Errorf("%d samples are filtered, of %d groups", st.Filtered, s.Filtered)
				}
				if st.Planned != groups*size || st.Remaining != 0 || st.Failed != size+1 || st.Filtered+st.Committed+st.Failed != s.Begun*size ||
					st.Skipped != (groups-s.Begun)*size || st.Unstarted != st.Skipped || more != ended {
					t.Errorf("stats %+v", st)
				}
				t.Logf("%d informative of %d groups", s.Informative, s.Begun)
			})
		})
	}
}

// A group that waits for a worker has not begun: a pause holds it, its deadline cuts it, and it
// begins in the version in which a worker takes it.
func TestGroupThatWaitsForAWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{script: func(collector.Attempt) step { return step{takes: time.Hour} }}
		p := pace.New(pace.Config{MaxLag: -1})
		lags := map[string]int32{}
		j := &judge{t: t, p: p, given: func(g *judged) { lags[g.task] = g.arrival.Lag }}
		c := setup(t, b, j, func(cfg *collector.Config) { cfg.Pace = p })
		j.c = c
		wait := run(t.Context(), c, tasks(3))
		p.SetVersion(0)
		time.Sleep(30 * time.Minute)
		p.SetVersion(1)
		time.Sleep(time.Hour) // t1 began half an hour ago
		synctest.Wait()
		if s := p.Stats(); s.Begun != 3 || s.Whole() != 1 {
			t.Errorf("pacer %+v", s)
		}
		p.Pause()
		time.Sleep(10 * time.Hour)
		if st := c.Stats(); st.Committed != 2 || st.InFlight != 0 || st.Held != 1 || st.Pace.Begun != 2 || st.Pace.Held != pace.HeldPaused {
			t.Errorf("in a pause: %+v; %+v", st, st.Pace)
		}
		p.SetVersion(2)
		p.Resume()
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		if want := map[string]int32{"t0": 1, "t1": 0, "t2": 0}; !maps.Equal(lags, want) {
			t.Errorf("lags %v, want %v", lags, want)
		}
	})
}

func TestEnoughEndsMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, ended := make(chan *collector.Task, 9), false
		p := pace.New(pace.Config{UntilGroups: 2, MaxLag: -1})
		j := &judge{t: t, p: p}
		c := setup(t, &scripted{script: func(collector.Attempt) step { return step{takes: time.Minute} }}, j, func(cfg *collector.Config) {
			cfg.Pace, cfg.More, cfg.Samples = p, stream(in, &ended), 3
		})
		j.c = c
		wait := run(t.Context(), c, tasks(1))
		in <- task("m")
		if err := wait(); err != nil || !ended {
			t.Errorf("Run = %v, source ended: %v", err, ended)
		}
		counts(t, c, 6, 0, 0, 0)
	})
}

func TestEndsOfPacedRuns(t *testing.T) {
	t.Parallel()
	for _, drain := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := pace.New(pace.Config{MaxAhead: 1, MaxLag: -1})
			c := setup(t, &scripted{}, &shelf{atOnce: true}, func(cfg *collector.Config) { cfg.Pace = p })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			wait := run(ctx, c, tasks(5))
			time.Sleep(time.Hour)
			want := context.Canceled
			if drain {
				want = nil
				c.Drain()
			} else {
				cancel()
			}
			if err := wait(); !errors.Is(err, want) {
				t.Errorf("Run = %v, want %v", err, want)
			}
			counts(t, c, 1, 0, 0, 1) // the second was read
			if s := p.Stats(); s.Begun != 1 || s.Held != pace.NotHeld {
				t.Errorf("pacer %+v", s)
			}
		})
	}
}

// The counts always add up and no sample is finished twice, for random failures, retries,
// deadlines, filters, versions, pauses, late tasks, drains and stops.
func TestCountsOfPacedRuns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 13))
			var mu sync.Mutex
			chance := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return rng.IntN(n)
			}
			b := &scripted{script: func(collector.Attempt) step {
				s := step{takes: time.Duration(chance(60)) * time.Second}
				switch chance(10) {
				case 0:
					s.runErr = collector.ErrRejected
				case 1:
					s.runErr = collector.ErrServer
				}
				return s
			}}
			k := 1 + chance(5)
			p := pace.New(pace.Config{MaxAhead: k, MaxLag: chance(4) - 1, UntilGroups: []int{0, 10}[chance(2)]})
			queue := make(chan string, 1000)
			j := &judge{t: t, p: p, trivial: mostly(0.4), given: func(g *judged) { queue <- g.id }}
			in := make(chan *collector.Task)
			ended := false
			c := setup(t, b, j, func(cfg *collector.Config) {
				cfg.Pace, cfg.More, cfg.Retries, cfg.Endpoints[0].MaxInFlight = p, stream(in, &ended), 2, 1+chance(9)
				cfg.Events.AttemptStarted = func(collector.Attempt, string) {
					st := p.Stats()
					if st.Ahead > k {
						t.Errorf("%d ahead, want at most %d", st.Ahead, k)
					}
				}
			})
			j.c = c
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			check := func() collector.Stats {
				st := c.Stats()
				identity(t, st)
				if st.Held > st.Remaining || min(st.Committed, st.Filtered, st.Failed, st.Skipped, st.Remaining, st.Held) < 0 {
					t.Errorf("stats %+v", st)
				}
				return st
			}
			accepted := 0
			go func() { // source of the tasks
				defer close(in)
				for i := range 30 {
					m := task("m%d", i)
					m.Samples = 1 + chance(4)
					if chance(3) == 0 {
						m.Deadline = time.Now().Add(time.Duration(chance(120)) * time.Second)
					}
					select {
					case in <- m:
						accepted += m.Samples
					case <-ctx.Done():
						return
					case <-time.After(time.Hour):
						return
					}
					time.Sleep(time.Duration(chance(10)) * time.Second)
				}
			}()
			trained := make(chan struct{})
			go func() { // trainer
				defer close(trained)
				for v := int32(0); ; v++ {
					p.SetVersion(v)
					for range 3 {
						select {
						case id := <-queue:
							p.Acknowledged(id)
							check()
						case <-ctx.Done():
							return
						}
					}
					time.Sleep(time.Duration(chance(30)) * time.Second)
				}
			}()
			go func() { // observer and operator
				for i := range 3000 {
					time.Sleep(7 * time.Second)
					if ctx.Err() != nil {
						return
					}
					check()
					switch {
					case i == 5:
						p.Pause()
					case i == 15:
						p.Resume()
					case i == 40 && seed%4 == 1:
						c.Drain()
					case i == 40 && seed%4 == 2:
						stop()
					}
				}
				stop()
			}()
			err := c.Run(ctx, tasks(2))
			st := check()
			b.check(t)
			stop()
			<-trained
			for key, n := range j.keys {
				if n != 1 {
					t.Errorf("sample %s was finished %d times", key, n)
				}
			}
			whole := seed%4 == 0 || seed%4 == 3
			if whole && (err != nil || st.Remaining != st.Accepted || st.Planned < accepted) {
				t.Errorf("seed %d: Run = %v, %d accepted; %+v; %+v", seed, err, accepted, st, st.Pace)
			}
			if s := p.Stats(); s.Begun < s.Whole() {
				t.Errorf("seed %d: pacer %+v", seed, s)
			}
			time.Sleep(time.Hour) // deadlines that have no effect any more
		})
	}
}
