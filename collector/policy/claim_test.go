package policy_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/tokenize"
)

// A send has a version if and only if the claim did not change during it. It compares random orders
// of sends and claims with the claims during each send.
func TestSetVersion(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		first := int32(random.IntN(4)) - 1
		cfg := policy.Config{Version: first}
		if first < 0 {
			cfg.Version = policy.Unclaimed
		}
		s := newSource(t, cfg)
		type send struct {
			*policy.Span
			claimed []int32 // all claims during the send
			from    tokenize.VersionSource
		}
		claim, changed := first, false
		var open []*send
		for range 60 {
			switch n := random.IntN(5); {
			case n < 2:
				from := tokenize.VersionFlag
				if changed {
					from = tokenize.VersionSet
				}
				open = append(open, &send{s.Begin(t.Context()), []int32{claim}, from})
			case n == 2:
				next := int32(random.IntN(3))
				if err := s.SetVersion(next); err != nil {
					t.Fatal(err)
				}
				changed, claim = changed || next != claim, next
				for _, sp := range open {
					sp.claimed = append(sp.claimed, claim)
				}
			case len(open) > 0:
				i := random.IntN(len(open))
				sp := open[i]
				open = slices.Delete(open, i, i+1)
				sp.End()
				want := sp.claimed[0]
				if slices.Max(sp.claimed) != slices.Min(sp.claimed) {
					want = policy.Unknown
				}
				if random.IntN(2) == 0 { // later claims change nothing
					claim, changed = 3, true
					if err := s.SetVersion(3); err != nil {
						t.Fatal(err)
					}
					for _, sp := range open {
						sp.claimed = append(sp.claimed, 3)
					}
				}
				if got, from := sp.Version(t.Context()); got != want || want >= 0 && from != sp.from {
					t.Fatalf("seed %d: version %d from %v, want %d: claimed meanwhile were %v", seed, got, from, want, sp.claimed)
				}
			}
			if s.NeedsTraces() != changed {
				t.Fatalf("seed %d: NeedsTraces = %v after the claim changed: %v", seed, s.NeedsTraces(), changed)
			}
		}
	}
	s := newSource(t, policy.Config{Version: policy.Unclaimed})
	if err := s.SetVersion(-1); err == nil {
		t.Error("SetVersion(-1): no error")
	}
	if v, _ := s.Begin(t.Context()).Version(t.Context()); v != policy.Unknown {
		t.Errorf("a send that has not ended has version %d", v)
	}
}

// A send with a version began and ended under that claim, while a trainer changes the claim.
func TestSetVersionWhileSending(t *testing.T) {
	t.Parallel()
	s := newSource(t, policy.Config{})
	var claimed, claiming atomic.Int32 // the last claim that was made, and the claim being made
	var sending sync.WaitGroup
	var known, unknown atomic.Int32
	for range 4 {
		sending.Go(func() {
			for claimed.Load() < 500 {
				from := claimed.Load()
				sp := s.Begin(t.Context())
				between := claimed.Load()
				sp.End()
				to := claiming.Load()
				switch v, _ := sp.Version(t.Context()); {
				case v == policy.Unknown && from == to:
					t.Errorf("a send is not known though %d was claimed all the while", from)
				case v == policy.Unknown:
					unknown.Add(1)
				case v < from || v > to || v < between:
					t.Errorf("a send between the claims of %d and %d has version %d", from, to, v)
				default:
					known.Add(1)
				}
			}
		})
	}
	for v := int32(1); v <= 500; v++ {
		claiming.Store(v)
		if err := s.SetVersion(v); err != nil {
			t.Error(err)
		}
		claimed.Store(v)
		for known.Load() < v && v < 500 { // some sends under each claim
			runtime.Gosched()
		}
	}
	sending.Wait()
}

// A page takes precedence over a claim, and the user is notified.
func TestSetVersionBesideAPage(t *testing.T) {
	t.Parallel()
	p := startPage(t, "4")
	s := run(t, policy.Config{URL: p.URL + "/", OneEngine: true})
	if err := s.SetVersion(9); err != nil {
		t.Fatal(err)
	}
	s.sends(t, none, 4)
	s.noticed(t, "the claimed version 9 is ignored")
}
