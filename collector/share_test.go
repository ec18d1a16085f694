package collector_test

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

// trickle yields n tasks, with a random pause of up to most before each.
func trickle(n int, most time.Duration, rng *rand.Rand) iter.Seq2[*collector.Task, error] {
	return each(n, func(int) {
		if most > 0 {
			time.Sleep(time.Duration(rng.Int64N(int64(most))))
		}
	})
}

// lasting is a server whose rollouts take a random time of up to most.
func lasting(most time.Duration) *scripted {
	return &scripted{script: func(collector.Attempt) step { return step{takes: rand.N(most)} }}
}

// Servers with room get fresh samples by their weights, for samples at once or one by one, and for
// any duration at each server.
func TestSharesByWeight(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				const n = 3000
				var pause time.Duration // all at once
				if seed%2 == 1 {
					pause = 200 * time.Millisecond
				}
				var servers []*scripted
				var weights []float64
				sum := 0.0
				c := setup(t, nil, &shelf{atOnce: true}, func(cfg *collector.Config) {
					cfg.Endpoints = nil
					for i := range 2 + rng.IntN(3) {
						servers = append(servers, lasting(time.Duration(1+rng.IntN(20))*time.Second))
						weights = append(weights, 0.25+4*rng.Float64())
						sum += weights[i]
						cfg.Endpoints = append(cfg.Endpoints, collector.Endpoint{Name: fmt.Sprint(i), Backend: servers[i], MaxInFlight: n, Weight: weights[i]})
					}
				})
				finish(t, c, trickle(n, pause, rng))
				counts(t, c, n, 0, 0, 0)
				for i, s := range servers {
					s.check(t)
					if got, want := float64(len(s.opened)), n*weights[i]/sum; math.Abs(got-want) > 0.02*n {
						t.Errorf("server %d of weight %.2f got %v samples, want %.0f", i, weights[i], got, want)
					}
				}
			})
		})
	}
}

// Each server reaches its own bound and never exceeds it. Samples do not wait for the server with
// the high weight while others have room.
func TestSamplesGoWhereRoomIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		bounds := []int{2, 7, 31}
		var servers []*scripted
		c := setup(t, nil, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.Endpoints = nil
			for i, most := range bounds {
				servers = append(servers, &scripted{script: func(collector.Attempt) step { return step{takes: 10 * time.Second} }})
				cfg.Endpoints = append(cfg.Endpoints, collector.Endpoint{Name: fmt.Sprint(i), Backend: servers[i], MaxInFlight: most, Weight: float64(100 / most)})
			}
		})
		time.AfterFunc(5*time.Second, func() {
			st := c.Stats()
			identity(t, st)
			for i, e := range st.Endpoints {
				if e.InFlight != bounds[i] {
					t.Errorf("server %d has %d in flight, want %d", i, e.InFlight, bounds[i])
				}
			}
			if o := st.Oldest; st.InFlight != 40 || o == nil || o.Stage != collector.StageRun || time.Since(o.Started) != 5*time.Second {
				t.Errorf("%d in flight, the oldest %+v, want 40 and one that runs since 5s", st.InFlight, o)
			}
		})
		took := finish(t, c, tasks(n))
		counts(t, c, n, 0, 0, 0)
		for i, s := range servers {
			s.check(t)
			if s.most != bounds[i] {
				t.Errorf("server %d had %d in flight, want %d", i, s.most, bounds[i])
			}
		}
		if want := n / 40 * 10 * time.Second; took != want {
			t.Errorf("took %v, and 40 at a time take %v", took, want)
		}
	})
}

// A server that is back gets its share again and does not catch up. While it is away the other
// server gets all samples.
func TestSharesOfAServerThatIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const goes, back = 10 * time.Minute, 30 * time.Minute
		a := newHost(5*time.Second, false, func(now time.Duration) bool { return now >= goes && now < back })
		b := newHost(5*time.Second, false, nil)
		const n = 6000
		c := setup(t, a, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.Endpoints = []collector.Endpoint{{Name: "a", Backend: a, MaxInFlight: 200, Weight: 3}, {Name: "b", Backend: b, MaxInFlight: 200}}
		})
		finish(t, c, trickle(n, time.Second, rand.New(rand.NewPCG(1, 1))))
		a.check(t)
		b.check(t)
		counts(t, c, n, 0, 0, 0)
		for _, span := range []struct {
			from, to    time.Duration
			least, most float64 // of a's share
		}{
			{0, goes - time.Minute, 0.73, 0.77},
			{goes + time.Minute, back, 0, 0},
			{back + time.Minute, back + 3*time.Minute, 0.7, 0.8},
			{back + 3*time.Minute, 49 * time.Minute, 0.73, 0.77},
		} {
			x, y := float64(a.after(span.from, span.to)), float64(b.after(span.from, span.to))
			if share := x / (x + y); share < span.least || share > span.most {
				t.Errorf("from %v to %v the share of a is %.3f of %v, want from %v to %v", span.from, span.to, share, x+y, span.least, span.most)
			}
		}
	})
}
