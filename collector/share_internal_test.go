package collector

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Two endpoints with constant room get samples in proportion to their weights, to within one sample
// of each over every span of time.
func TestSharesAreFairOverEverySpan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		weights := []float64{0.1 + 10*rng.Float64(), 0.1 + 10*rng.Float64(), 0.1 + 10*rng.Float64(), 0.1 + 10*rng.Float64()}
		var endpoints []*endpoint
		for _, w := range weights {
			endpoints = append(endpoints, &endpoint{Endpoint: Endpoint{Weight: w}})
		}
		s := newShares(endpoints)
		s.setReady(0, true)
		s.setReady(1, true)
		on := []bool{true, true, false, false}
		var ahead, least, most float64 // lead of the first over the second, in shares
		for range 5000 {
			if i := 2 + rng.IntN(2); rng.IntN(8) == 0 {
				on[i] = !on[i]
				s.setReady(i, on[i])
			}
			at, _ := s.next()
			if at < 0 || !on[at] {
				t.Fatalf("seed %d: %d is next, of %v", seed, at, on)
			}
			s.assign(at)
			switch at {
			case 0:
				ahead += 1 / weights[0]
			case 1:
				ahead -= 1 / weights[1]
			}
			least, most = min(least, ahead), max(most, ahead)
		}
		if bound := 1/weights[0] + 1/weights[1] + 1e-6; most-least > bound {
			t.Errorf("seed %d: weights %v: the shares are %v apart, want at most %v", seed, weights, most-least, bound)
		}
	}
}

// A waiting caller is woken only when an endpoint comes or goes.
func TestSharesSignalChanges(t *testing.T) {
	t.Parallel()
	s := newShares([]*endpoint{{Endpoint: Endpoint{Weight: 1}}, {Endpoint: Endpoint{Weight: math.Pi}}})
	for _, step := range []struct {
		what    func()
		next    int
		changes bool
	}{
		{func() {}, -1, false},
		{func() { s.setReady(1, true) }, 1, true},
		{func() { s.setReady(1, true) }, 1, false},
		{func() { s.assign(1) }, 1, false},
		{func() { s.setReady(1, false) }, 1, false},
		{func() { s.setReady(0, true) }, 0, true},
		{func() { s.assign(0) }, 1, false},
		{func() { s.setReady(1, false) }, 0, true},
		{func() { s.addMoving(2) }, -1, true},
		{func() { s.setReady(1, true) }, -1, true},
		{func() { s.addMoving(-1) }, -1, false},
		{func() { s.addMoving(-1) }, 1, true},
	} {
		_, changed := s.next()
		step.what()
		select {
		case <-changed:
			if !step.changes {
				t.Error("notified without a change")
			}
		default:
			if step.changes {
				t.Error("not notified of a change")
			}
		}
		if at, _ := s.next(); at != step.next {
			t.Errorf("next is %d, want %d", at, step.next)
		}
	}
}
