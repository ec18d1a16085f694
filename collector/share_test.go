package collector_test

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"testing"
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

// weighted replaces the endpoint by servers with weights.
func (r *rig) weighted(room int, servers []*scripted, weights []float64) {
	r.cfg.Endpoints = nil
	for i, w := range weights {
		e := collector.Endpoint{Name: fmt.Sprint(i), Backend: servers[i], MaxInFlight: room, Weight: w}
		r.cfg.Endpoints = append(r.cfg.Endpoints, e)
	}
}

// Servers with room get fresh samples by their weights, for samples at once or one by one, and for
// any duration at each server.
func TestSharesByWeight(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(r *rig) {
				rng := rand.New(rand.NewPCG(seed, 1))
				const n = 3000
				var pause time.Duration // all at once
				if seed%2 == 1 {
					pause = 200 * time.Millisecond
				}
				var servers []*scripted
				var weights []float64
				sum := 0.0
				for i := range 2 + rng.IntN(3) {
					servers = append(servers, lasting(time.Duration(1+rng.IntN(20))*time.Second))
					weights = append(weights, 0.25+4*rng.Float64())
					sum += weights[i]
				}
				r.weighted(n, servers, weights)
				r.finish(trickle(n, pause, rng)).counts(n, 0, 0, 0)
				for i, s := range servers {
					if got, want := float64(len(s.opened)), n*weights[i]/sum; math.Abs(got-want) > 0.02*n {
						r.Errorf("server %d of weight %.2f got %v samples, want %.0f", i, weights[i], got, want)
					}
				}
			})
		})
	}
}

// Each server reaches its own bound and never exceeds it. Samples do not wait for the server with
// the high weight while others have room.
func TestSamplesGoWhereRoomIs(t *testing.T) {
	bubble(t, func(r *rig) {
		const n = 1000
		bounds := []int{2, 7, 31}
		var servers []*scripted
		var weights []float64
		for _, most := range bounds {
			servers = append(servers, &scripted{script: always(step{takes: 10 * time.Second})})
			weights = append(weights, float64(100/most))
		}
		r.weighted(n, servers, weights)
		for i, most := range bounds {
			r.cfg.Endpoints[i].MaxInFlight = most
		}
		c := r.build()
		time.AfterFunc(5*time.Second, func() {
			st := c.Stats()
			identity(r, st)
			for i, e := range st.Endpoints {
				is(r, "in flight at server "+e.Name, e.InFlight, bounds[i])
			}
			if o := st.Oldest; st.InFlight != 40 || o == nil || o.Stage != collector.StageRun || time.Since(o.Started) != 5*time.Second {
				r.Errorf("%d in flight, the oldest %+v, want 40 and one that runs since 5s", st.InFlight, o)
			}
		})
		r.finish(tasks(n)).counts(n, 0, 0, 0)
		for i, s := range servers {
			is(r, fmt.Sprint("most in flight at server ", i), s.most, bounds[i])
		}
		is(r, "time of 40 at a time", r.took, n/40*10*time.Second)
	})
}

// A server that is back gets its share again and does not catch up. While it is away the other
// server gets all samples.
func TestSharesOfAServerThatIsBack(t *testing.T) {
	bubble(t, func(r *rig) {
		const goes, back = 10 * time.Minute, 30 * time.Minute
		a, b := newHost(5*time.Second, false, away(goes, back)), newHost(5*time.Second, false, nil)
		const n = 6000
		r.servers(200, a, b)
		r.cfg.Endpoints[0].Weight = 3
		r.finish(trickle(n, time.Second, rand.New(rand.NewPCG(1, 1))))
		r.counts(n, 0, 0, 0)
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
			within(r, fmt.Sprint("share of a from ", span.from), x/(x+y), span.least, span.most)
		}
	})
}
