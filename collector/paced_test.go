package collector_test

import (
	"context"
	"hash/fnv"
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
	r       *rig
	p       *pace.Pacer
	trivial func(taskID string) bool
	given   func(g *judged)

	mu     sync.Mutex
	groups map[string]*judged
	keys   map[string]int // number of Appends per sample
}

// judge paces the collector and makes a judge its sink.
func (r *rig) judge(cfg pace.Config) *judge {
	j := &judge{r: r, p: pace.New(cfg), groups: map[string]*judged{}, keys: map[string]int{}}
	r.cfg.Sink, r.cfg.Pace = j, j.p
	return j
}

// A judged is a group in the judge.
type judged struct {
	id, task string
	samples  []*tokenize.Sample
	done     []func(error)
	lag      int32
}

func (j *judge) Append(_ context.Context, s *tokenize.Sample, done func(error)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
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
		j.r.c.Filter(keys...)
	}
	for _, done := range g.done {
		done(nil)
		identity(j.r, j.r.c.Stats())
	}
	g.lag = j.p.Whole(g.id, outcome, -1)
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
	const groups, size, need = 1000, 4, 60
	bothWays(t, func(r *rig, more bool) {
		rng := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		r.b.script = func(a collector.Attempt) step {
			mu.Lock()
			defer mu.Unlock()
			s := step{takes: time.Duration(1+rng.IntN(60)) * time.Second}
			if a.Task.ID == "t3" || a.Task.ID == "t8" && a.Index == 1 {
				s.runErr = collector.ErrRejected
			}
			return s
		}
		j := r.judge(pace.Config{UntilGroups: need, MaxLag: -1})
		j.trivial, j.given = mostly(0.6), func(g *judged) { j.p.Acknowledged(g.id) }
		r.room(64)
		r.cfg.Samples = size
		known := tasks(groups)
		if more { // and more tasks can come
			known = tasks(0)
			source := r.more()
			source.in = make(chan *collector.Task, groups)
			for m := range tasks(groups) {
				source.in <- m
			}
			defer func() { is(r, "source ended", source.ended, true) }()
		} else {
			r.cfg.Planned = groups * size
		}
		r.finish(known)
		st := r.c.Stats()
		s := st.Pace
		within(r, "informative", s.Informative, need, need+16)
		within(r, "begun", s.Begun, need, need*10/4*5/4)
		within(r, "filtered", s.Filtered, need, groups)
		is(r, "failed groups", s.Failed, 1)
		// One sample of a group with rows failed.
		within(r, "filtered samples", st.Filtered, s.Filtered*size-1, s.Filtered*size)
		r.counts(s.Begun*size-st.Filtered-size-1, size+1, (groups-s.Begun)*size, 0)
		same(r, "planned, unstarted", []int{st.Planned, st.Unstarted}, groups*size, st.Skipped)
	})
}

// A group that waits for a worker has not begun: a pause holds it, its deadline cuts it, and it
// begins in the version in which a worker takes it.
func TestGroupThatWaitsForAWorker(t *testing.T) {
	bubble(t, func(r *rig) {
		r.b.script = always(step{takes: time.Hour})
		j := r.judge(pace.Config{MaxLag: -1})
		lags := map[string]int32{}
		j.given = func(g *judged) { lags[g.task] = g.lag }
		wait := r.start(r.Context(), tasks(3))
		j.p.SetVersion(0)
		time.Sleep(30 * time.Minute)
		j.p.SetVersion(1)
		time.Sleep(time.Hour) // t1 began half an hour ago
		synctest.Wait()
		s := j.p.Stats()
		same(r, "begun, whole", []int{s.Begun, s.Whole()}, 3, 1)
		j.p.Pause()
		time.Sleep(10 * time.Hour)
		st := r.c.Stats()
		same(r, "committed, in flight, held, begun", []int{st.Committed, st.InFlight, st.Held, st.Pace.Begun},
			2, 0, 1, 2)
		is(r, "held in a pause", st.Pace.Held, pace.HeldPaused)
		j.p.SetVersion(2)
		j.p.Resume()
		is(r, "Run", wait(), nil)
		equal(r, "lags", lags, map[string]int32{"t0": 1, "t1": 0, "t2": 0})
	})
}

// A run that has enough groups ends while the source of more tasks waits.
func TestEnoughEndsMore(t *testing.T) {
	bubble(t, func(r *rig) {
		r.judge(pace.Config{UntilGroups: 2, MaxLag: -1})
		more := r.more()
		more.in <- task("m")
		r.b.script, r.cfg.Samples = always(step{takes: time.Minute}), 3
		r.finish(tasks(1)).counts(6, 0, 0, 0)
		is(r, "source ended", more.ended, true)
	})
}

func TestEndsOfPacedRuns(t *testing.T) {
	bubbles(t, map[string]error{"drain": nil, "stop": context.Canceled}, func(r *rig, want error) {
		p := pace.New(pace.Config{MaxAhead: 1, MaxLag: -1})
		r.cfg.Pace = p
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		end := r.build().Drain
		if want != nil {
			end = cancel
		}
		time.AfterFunc(time.Hour, end)
		r.fails(ctx, tasks(5), want).counts(1, 0, 0, 1) // the second was read
		s := p.Stats()
		is(r, "begun", s.Begun, 1)
		is(r, "held", s.Held, pace.NotHeld)
	})
}

// The counts always add up and no sample is finished twice, for random failures, retries,
// deadlines, filters, versions, pauses, late tasks, drains and stops.
func TestCountsOfPacedRuns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			rng := rand.New(rand.NewPCG(seed, 13))
			var mu sync.Mutex
			chance := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return rng.IntN(n)
			}
			r.b.script = func(collector.Attempt) step {
				s := step{takes: time.Duration(chance(60)) * time.Second}
				switch chance(10) {
				case 0:
					s.runErr = collector.ErrRejected
				case 1:
					s.runErr = collector.ErrServer
				}
				return s
			}
			k := 1 + chance(5)
			j := r.judge(pace.Config{MaxAhead: k, MaxLag: chance(4) - 1, UntilGroups: []int{0, 10}[chance(2)]})
			p, queue := j.p, make(chan string, 1000)
			j.trivial, j.given = mostly(0.4), func(g *judged) { queue <- g.id }
			in := make(chan *collector.Task)
			r.more().in = in
			r.cfg.Retries = 2
			r.room(1 + chance(9))
			r.cfg.Events.AttemptStarted = func(collector.Attempt, string) {
				within(r, "groups ahead", p.Stats().Ahead, 0, k)
			}
			c := r.build()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			check := func() collector.Stats {
				st := c.Stats()
				identity(r, st)
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
			err := r.run(ctx, tasks(2))
			st := check()
			stop()
			<-trained
			for key, n := range j.keys {
				is(r, "ends of sample "+key, n, 1)
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
